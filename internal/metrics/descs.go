package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hubd_"+name, help, labels, nil)
}

// What this node counts, since its start.
var (
	publishedDesc = desc("messages_published_total",
		"Messages accepted for a room of the feed and fanned out on this node.", "feed")
	publishRejectedDesc = desc("publish_rejected_total",
		"Publishes refused, by reason.", "reason")
	offeredDesc = desc("frames_offered_total",
		"Frames offered to a subscription's queue, or taken from history for it. At rest equal to sent, dropped, queued and in flight together.", "feed", "policy")
	sentDesc = desc("frames_sent_total",
		"Frames written to a subscriber's socket. No receipt is implied.", "feed", "policy")
	droppedDesc = desc("frames_dropped_total",
		"Frames that were offered to a subscription and lost to it, by reason.", "feed", "policy", "reason")
	overflowDesc = desc("overflow_total",
		"Offers that hit a limit of a subscription's queue, by the limit.", "feed", "policy", "reason")
	encodedDesc = desc("frames_encoded_total",
		"Encodings made of messages: one a message and encoding in use, whatever the number of subscribers.", "encoding")
	connectionsClosedDesc = desc("connections_closed_total",
		"Connections ended, by cause.", "reason")
	closeOutcomeDesc = desc("close_outcome_total",
		"How ended connections were closed: handshake done (clean), destroyed by this end at the close deadline (deadline), broken by the other end first (reset).", "outcome")
	handshakesRejectedDesc = desc("handshakes_rejected_total",
		"Requests to join refused before their upgrade, by reason.", "reason")
	buildInfoDesc = desc("build_info",
		"Always 1; the labels tell what is running.", "version", "revision", "goversion")
)

// Durations of what happened since the start.
var (
	inQueueDesc = desc("time_in_queue_seconds",
		"Time of sent frames from their offer until written to the socket, in seconds.", "feed", "policy")
	fanoutDesc = desc("fanout_duration_seconds",
		"Time that offering one message to all subscriptions of its room took, in seconds.", "feed")
	writeDesc = desc("write_duration_seconds",
		"Time that one write of a batch of frames to a socket took, in seconds.")
)

// What is so at the moment of the scrape.
var (
	connectionsDesc = desc("connections",
		"Connections open now, by transport.", "transport")
	roomsDesc = desc("rooms",
		"Rooms that have subscribers or retained history now.")
	subscriptionsDesc = desc("subscriptions",
		"Subscriptions now: memberships of a connection in a room.", "feed", "policy")
	depthMessagesDesc = desc("queue_depth_messages",
		"Frames queued for a subscription, over all subscriptions now. The count is the number of subscriptions. 0 without any.")
	depthBytesDesc = desc("queue_depth_bytes",
		"Payload queued for a subscription, in bytes, over all subscriptions now. The count is the number of subscriptions. 0 without any.")
	queuedFramesDesc = desc("queued_frames",
		"Frames in the queues of all subscriptions now.")
	queuedBytesDesc = desc("queued_bytes",
		"Payload in the queues of all subscriptions now, in bytes. A frame counts in each queue it is in.")
	inFlightDesc = desc("frames_in_flight",
		"Frames taken out of a queue for a write that has not ended.")
	retainedBytesDesc = desc("retained_bytes",
		"Memory of the distinct frames that are kept alive now, in bytes. A frame counts once.")
	oldestDesc = desc("queue_oldest_seconds",
		"Age of the oldest frame in any queue now, in seconds. 0 when all are empty.")
)
