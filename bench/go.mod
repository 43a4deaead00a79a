module hubd/bench

go 1.26.0

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
