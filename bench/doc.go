// Command bench measures hubd from outside, over the wire, and prints the
// figures that its documentation quotes.
//
// It builds hubd from the parent directory, starts it as a process of its own
// on a loopback port, and is itself the load generator. It never imports hubd's
// packages: what it sees is what any client, operator or scraper can see, and
// what the kernel says about the process.
//
// # How it compares
//
// Absolute numbers drift by tens of percent from minute to minute on a small
// machine, so every figure is a comparison made within one run: the variants
// (with and without stuck subscribers, hubd and a peer server, …) take turns,
// several rounds of them, in an order that rotates from round to round. Ratios
// are taken within a round, where both sides met the same weather; what is
// printed is their median and their range.
//
// # How the generator stays out of the way
//
// It shares the processors with the server. All subscribers are therefore
// served by one goroutine on one epoll instance (fleet.go), with one read into
// one large shared buffer each time a socket is readable, and a decoder that
// looks at no more of a message than its header and first bytes (wire.go). Its
// own CPU time is printed beside the server's.
//
// # Files
//
//	main.go        the command line, and which figures there are
//	report.go      what a figure consists of; tables and JSON
//	lab.go         building and starting servers, waiting for them, ending them
//	proc.go        CPU time, memory and sockets, as the kernel counts them
//	scrape.go      reading /metrics
//	stats.go       quantiles, medians, interpolation in histograms
//	wire.go        the client's half of WebSocket: handshake, frames
//	fleet.go       many subscribers on one goroutine
//	publish.go     publishing over HTTP, and at a steady rate
//	peer.go        the peer servers: the ordinary ways to do it
//	peer_floor.go  the peer with nothing but the system calls
//
//	isolation.go   what stuck subscribers cost the others
//	eviction.go    how fast many slow consumers are gone
//	freshness.go   how old what a slow reader gets is
//	encodings.go   how often a message is encoded
//	throughput.go  deliveries a second, and what they cost
//	churn.go       whether every frame is accounted for
//	idle.go        memory of idle connections
package main
