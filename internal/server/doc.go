// Package server is the HTTP and WebSocket side of a hub: admission, the
// connections and their one write path, the JSON protocol, publishing, and what
// operators look at.
//
// A WebSocket connection has a reader, and a writer that is a goroutine only
// while there is something to write. The writer takes the control lane and then
// frames from the queues of the connection's rooms, at most 64 KiB, and hands
// them to the kernel in one write. Frames are encoded once for all subscribers,
// header included, and go past the WebSocket library, which keeps the
// handshake, the reading and the close. The pipe under both serialises writes
// and knows when nothing may be written any more; what it reads it judges first,
// so the library sees no frame that RFC 6455 forbids, and none that is
// compressed.
//
// What the kernel holds unsent is bounded, so a subscriber's queue is where its
// backlog is, and its policy decides about it. A write that makes no progress
// for the write timeout ends the connection; one that progresses slowly is left
// alone.
//
// A connection ends once, by a Cause. Deciding it costs nothing (set the cause,
// start the close timeout, wake the writer), so a publisher can do it. The
// writer leaves the rooms, sends what must still be sent, and performs the
// close handshake; the close timeout destroys the socket if any of that takes
// too long, whatever the peer does.
//
// Invariants:
//   - the reader never waits for output, but for answers ahead of the last
//     close frame; nor does a publisher for a socket;
//   - every request with an id gets one answer, ahead of data;
//   - a room's joined frame comes before all its others, its left frame after;
//   - each frame taken from a queue is counted as sent or as closed;
//   - a connection is gone within write timeout and close timeout of its end
//     being decided, its goroutines joined, its timers stopped.
//
// Goroutines: the reader is started in start and joined in finish; the writer
// is started in Wake, and the last one runs finish, which reports to
// Server.closed; Close and Drain wait for all such reports. Timers (ping,
// token, close) are the connection's and only set state.
//
// Files: server.go, life and registry; routes.go, problem.go, origin.go, the
// HTTP surface; access.go, tokens and what they permit; publish.go, admin.go,
// the handlers; upgrade.go, from request to connection; conn.go, a connection's
// life; reader.go and command.go, what comes in; pump.go and lane.go, what goes
// out; ping.go; pipe.go, scan.go, deflate.go and sock_*.go, the bytes; cause.go,
// the close table.
package server
