package main

import "context"

type tailCommand struct {
	Rooms []string `arg:"" name:"room" help:"Rooms to follow."`
	target
}

func (c *tailCommand) run(ctx context.Context, p *program) error { return nil }
