package hub

import "time"

// Code is the stable name of an error, the same over HTTP and in error frames.
type Code string

// The codes that the hub and its doors answer with.
const (
	InvalidRoom     Code = "invalid_room"
	InvalidOption   Code = "invalid_option"
	InvalidPosition Code = "invalid_position"
	InvalidMessage  Code = "invalid_message"
	MessageTooLarge Code = "message_too_large"
	Unauthorized    Code = "unauthorized"
	Forbidden       Code = "forbidden"
	OriginForbidden Code = "origin_forbidden"
	HostForbidden   Code = "host_forbidden"
	NotFound        Code = "not_found"
	Overflow        Code = "overflow"
	OverCapacity    Code = "over_capacity"
	RateLimited     Code = "rate_limited"
	TooManyRooms    Code = "too_many_rooms"
	AlreadyJoined   Code = "already_joined"
	NotJoined       Code = "not_joined"
	Draining        Code = "draining"

	IdempotencyConflict Code = "idempotency_conflict"
)

// Error is a refusal: nothing was changed by what it refuses.
type Error struct {
	Code Code
	// Detail is for a person. It never repeats what the client sent.
	Detail string
	// RetryAfter is when trying again may help; 0: no such time is known.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

var errDraining = &Error{Code: Draining, Detail: "this node is shutting down; try another or come back later", RetryAfter: time.Second}
