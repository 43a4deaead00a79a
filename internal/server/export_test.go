package server

// CloseTexts returns the reasons that a close frame may give.
func CloseTexts() (texts []string) {
	for _, row := range closeTable {
		texts = append(texts, row.text)
	}
	return texts
}
