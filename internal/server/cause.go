package server

import (
	"github.com/coder/websocket"
)

// Cause is why a connection ended. It decides the close frame and the label in
// the metrics; a connection has one cause, the first.
type Cause uint8

// The causes.
const (
	causeNone Cause = iota
	causeClient
	causeSlowConsumer
	causeWriteTimeout
	causePingTimeout
	causeDrain
	causeProtocol
	causeUnsupported
	causeUTF8
	causeTooBig
	causeUnauthorized
	causeForbidden
	causeOverCapacity
	causeKicked
	causeError
	numCauses = iota
)

// closing is one row of the close table.
type closing struct {
	label closeReason
	code  websocket.StatusCode
	// text is the close frame's reason; these are all there are.
	text string
	// flush: what is queued is sent first, as far as the close timeout allows.
	flush bool
}

// closeReason is a label of hubd_connections_closed_total.
type closeReason uint8

const (
	closedClient closeReason = iota
	closedSlowConsumer
	closedWriteTimeout
	closedPingTimeout
	closedDrain
	closedProtocolError
	closedUnauthorized
	closedForbidden
	closedOverCapacity
	closedKicked
	closedError
)

// CloseReasons returns the labels of hubd_connections_closed_total in order.
func CloseReasons() []string {
	return []string{"client", "slow_consumer", "write_timeout", "ping_timeout", "drain", "protocol_error",
		"unauthorized", "forbidden", "over_capacity", "kicked", "error"}
}

// closeTable says how each cause is told. Codes below 4000 are of RFC 6455,
// section 7.4.1. 4001 and 4003 mean: do not come back with the same token; all
// others: come back, with jitter.
var closeTable = [numCauses]closing{
	causeClient:       {closedClient, websocket.StatusNormalClosure, "", false},
	causeSlowConsumer: {closedSlowConsumer, 4008, "slow consumer: the queue overflowed", false},
	causeWriteTimeout: {closedWriteTimeout, 4008, "slow consumer: nothing was read in time", false},
	causePingTimeout:  {closedPingTimeout, 4007, "no pong in time", false},
	causeDrain:        {closedDrain, websocket.StatusGoingAway, "the node is shutting down", true},
	causeProtocol:     {closedProtocolError, websocket.StatusProtocolError, "protocol error", false},
	causeUnsupported:  {closedProtocolError, websocket.StatusUnsupportedData, "only text messages here", false},
	causeUTF8:         {closedProtocolError, websocket.StatusInvalidFramePayloadData, "text is not valid UTF-8 or not valid JSON", false},
	causeTooBig:       {closedProtocolError, websocket.StatusMessageTooBig, "message too large", false},
	causeUnauthorized: {closedUnauthorized, 4001, "unauthorized", false},
	causeForbidden:    {closedForbidden, 4003, "forbidden", false},
	causeOverCapacity: {closedOverCapacity, websocket.StatusTryAgainLater, "over capacity", false},
	causeKicked:       {closedKicked, 4009, "kicked by an operator", true},
	causeError:        {closedError, websocket.StatusInternalError, "server fault", false},
}

// closeOutcome is a label of hubd_close_outcome_total.
type closeOutcome uint8

const (
	outcomeClean    closeOutcome = iota // the close handshake was completed
	outcomeDeadline                     // we destroyed the socket
	outcomeReset                        // the peer's end broke first
)

// CloseOutcomes returns the labels of hubd_close_outcome_total in order.
func CloseOutcomes() []string { return []string{"clean", "deadline", "reset"} }
