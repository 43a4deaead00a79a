// Package frame holds what is passed around: the name of a room, a position in
// it, a message, and the message's encoded, shared form.
//
// A Frame is made once per message and handed by pointer to every subscriber
// of the room. Everything in it is immutable but two things: the table of its
// encodings, each filled in by whoever needs it first and then shared by all,
// and the count of those who hold it. When the last holder lets go, the frame's
// bytes leave the Ledger. The garbage collector would free the memory without
// that count; the count is there so that what is retained is known exactly, at
// any moment, without walking the queues.
//
// Invariants:
//   - a message is encoded at most once in each encoding, however many
//     subscribers read it (Ledger.Encoded counts);
//   - bytes returned by Frame.Bytes are never written to again;
//   - a Room is always a valid name: the only way to one is ParseRoom.
//
// Files: room.go, the name; position.go, epoch and sequence; message.go, what is
// published and its validation; frame.go, the shared form; encode.go, the
// encodings and the WebSocket frame header; ledger.go, the accounting.
package frame
