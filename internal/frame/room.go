package frame

import "errors"

// MaxRoomBytes is the longest name of a room.
const MaxRoomBytes = 128

// ErrRoom is what ParseRoom returns for every name that is not one. Its text
// is fixed and does not repeat the name.
var ErrRoom = errors.New(`a room's name is 1 to 128 bytes of A-Z a-z 0-9 . _ ~ : @ - and is neither "." nor ".."`)

// Room is a valid name of a room. It is comparable; the zero Room names
// nothing. Its characters need no escaping in a URL path segment (RFC 3986,
// section 3.3) or in JSON.
type Room struct{ name string }

// ParseRoom returns the room that s names, or ErrRoom. Names are compared byte
// for byte; percent-decoding is the caller's, once.
func ParseRoom(s string) (Room, error) {
	if len(s) == 0 || len(s) > MaxRoomBytes || s == "." || s == ".." {
		return Room{}, ErrRoom
	}
	for i := range len(s) {
		if !roomByte(s[i]) {
			return Room{}, ErrRoom
		}
	}
	return Room{s}, nil
}

func roomByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	switch b {
	case '.', '_', '~', ':', '@', '-':
		return true
	}
	return false
}

// String returns the name.
func (r Room) String() string { return r.name }

// MarshalText implements encoding.TextMarshaler.
func (r Room) MarshalText() ([]byte, error) { return []byte(r.name), nil }
