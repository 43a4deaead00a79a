package queue

import (
	"fmt"
	"slices"
	"strings"
)

// Policy decides what a full queue loses.
type Policy uint8

const (
	// DropNewest refuses the arriving frame.
	DropNewest Policy = iota
	// DropOldest drops from the head until the arriving frame fits.
	DropOldest
	// KeepLatest keeps the newest frame of each key, the arriving one included.
	// Without keys that clears the queue.
	KeepLatest
	// Disconnect closes the queue: its subscriber is to be cut off.
	Disconnect
	// RejectPublish has the publisher ask Fits of every queue first. An offer
	// that does not fit all the same is refused as under DropNewest.
	RejectPublish
	// NumPolicies is the number of policies.
	NumPolicies = iota
)

// Reason is why a frame was dropped.
type Reason uint8

const (
	// Overflow: a limit was hit.
	Overflow Reason = iota
	// Conflated: a newer frame of the same key took its place.
	Conflated
	// Expired: it had waited longer than the TTL when its turn came.
	Expired
	// Budget: the hub as a whole had no memory left for it.
	Budget
	// Closed: the queue ended before the frame was sent.
	Closed
	// NumReasons is the number of reasons.
	NumReasons = iota
)

// Limit is the bound that an offer hit.
type Limit uint8

const (
	// LimitNone: the offer fitted.
	LimitNone Limit = iota
	LimitMessages
	LimitBytes
	LimitBudget
	// NumLimits is the number of limits, LimitNone included.
	NumLimits = iota
)

var (
	policyNames = [NumPolicies]string{"drop-newest", "drop-oldest", "keep-latest", "disconnect", "reject-publish"}
	reasonNames = [NumReasons]string{"overflow", "conflated", "expired", "budget", "closed"}
	limitNames  = [NumLimits]string{"none", "messages", "bytes", "budget"}
)

// Policies lists all policies; a policy's number is its index.
func Policies() []Policy { return enumerate[Policy](NumPolicies) }

// PolicyNames lists the names of all policies; a policy's number is the index
// of its name.
func PolicyNames() []string { return slices.Clone(policyNames[:]) }

// Reasons lists all reasons; a reason's number is its index.
func Reasons() []Reason { return enumerate[Reason](NumReasons) }

// ReasonNames lists the names of all reasons; a reason's number is the index of
// its name.
func ReasonNames() []string { return slices.Clone(reasonNames[:]) }

// LimitNames lists the names of the limits that can be hit. LimitNone is not
// among them, so a limit's number is the index of its name plus one.
func LimitNames() []string { return slices.Clone(limitNames[1:]) }

func enumerate[E ~uint8](n int) []E {
	all := make([]E, n)
	for i := range all {
		all[i] = E(i)
	}
	return all
}

// ParsePolicy returns the policy of that exact name. The error lists the valid
// names.
func ParsePolicy(name string) (Policy, error) {
	if i := slices.Index(policyNames[:], name); i >= 0 {
		return Policy(i), nil
	}
	return 0, fmt.Errorf("unknown policy %q: must be one of %s", name, strings.Join(policyNames[:], ", "))
}

func (p Policy) String() string { return nameOf(policyNames[:], int(p), "Policy") }

func (r Reason) String() string { return nameOf(reasonNames[:], int(r), "Reason") }

func (l Limit) String() string { return nameOf(limitNames[:], int(l), "Limit") }

func nameOf(names []string, i int, typ string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}

// MarshalText writes the policy's name; a number that is no policy is an error.
func (p Policy) MarshalText() ([]byte, error) {
	if p >= NumPolicies {
		return nil, fmt.Errorf("no such policy: %d", uint8(p))
	}
	return []byte(policyNames[p]), nil
}

// UnmarshalText reads a name as ParsePolicy does.
func (p *Policy) UnmarshalText(text []byte) error {
	parsed, err := ParsePolicy(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
