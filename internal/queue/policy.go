package queue

// Policy decides what a full queue loses.
type Policy uint8

const (
	DropNewest Policy = iota
	DropOldest
	KeepLatest
	Disconnect
	RejectPublish
	NumPolicies = iota
)

// Reason is why a frame was dropped.
type Reason uint8

const (
	Overflow Reason = iota
	Conflated
	Expired
	Budget
	Closed
	NumReasons = iota
)

// Limit is the bound that an offer hit.
type Limit uint8

const (
	LimitNone Limit = iota
	LimitMessages
	LimitBytes
	LimitBudget
	NumLimits = iota
)
