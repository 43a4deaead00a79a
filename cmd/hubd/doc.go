// Command hubd is the WebSocket fan-out server and its tools.
//
// # Model
//
// main gives the process's signals and streams to run, which executes one
// command line and returns its exit status: 0, 1 for a fault, 2 for a mistake
// in the command line, the environment or the configuration file. run touches
// nothing of the process but what it is given, so tests call it as it is, with
// servers at port 0. The first signal cancels the command's context, which is
// every command's cue to end in order; the second one ends the process with
// status 1.
//
// A command is a struct of flags with a method run. Flags, and the variables
// that stand for them, are parsed by mappers that note a wrong value and go on,
// and the configuration file is walked as a tree, so that all that is wrong is
// told at once, each problem with its flag, variable or line and with what to
// do about it. No command begins its work while there is a problem.
//
// serve makes the parts from the bottom up (registry, metrics, hub, server,
// listeners) and ends them in reverse. The commands of a client speak to a
// server over the wire only, as any other client does; what they print of a
// server's words cannot break a line or command the terminal.
//
// # Files
//
//   - main.go: signals and the exit status
//   - run.go: the grammar of the command line, from arguments to a command
//   - problems.go: collecting and reporting mistakes, suggestions
//   - environment.go: HUBD_* variables, known and unknown
//   - values.go: the types of flags: sizes, numbers, times, choices
//   - settings.go: the server's flags and what they come to
//   - feeds.go: the configuration file
//   - descriptors_*.go, memory.go: the limits on open files and on memory
//   - tokens.go: the flags of authentication, and the command token
//   - serve.go, simulate.go, plan.go, publish.go, tail.go, config.go, health.go,
//     version.go: a command each
//   - demo.go, demo_room.go: the demo's play; its rooms and real clients
//   - demo_report.go, demo_summary.go: how things stand, and what it came to
//   - screen.go, terminal_*.go: a table that changes in place
//   - client.go: finding a server, and its refusals
//   - tail_session.go, tail_print.go: one connection of tail; what it prints
//   - slow.go, slow_*.go: reading slowly on purpose
//   - text.go: text that is safe to print
package main
