package auth

import (
	"path"
	"slices"
	"time"
)

// Grant is what a token permits. The zero Grant permits nothing.
type Grant struct {
	// Subject is whom the token is for.
	Subject string
	// Expires is the token's exp; the leeway comes on top of it.
	Expires time.Time
	// Admin permits what operators do.
	Admin bool

	join, publish []string // globs, each valid
}

// MayJoin reports whether the room of that name may be joined, and read in
// every other way.
func (g Grant) MayJoin(room string) bool { return matches(g.join, room) }

// MayPublish reports whether messages may be published to the room.
func (g Grant) MayPublish(room string) bool { return matches(g.publish, room) }

func matches(globs []string, room string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, room)
		return ok && err == nil
	})
}
