package hub

// Registered returns the number of rooms in the registry, dead ones included.
func (h *Hub) Registered() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.rooms)
}
