package main

import (
	"context"
	"fmt"
	"slices"

	"hubd/internal/queue"
	"hubd/internal/sim"
)

// simulateCommand runs the real queues in integer ticks.
type simulateCommand struct {
	Ticks    count            `group:"publisher" default:"200" placeholder:"N" help:"Ticks to run. Default: 200."`
	Rate     count            `group:"publisher" default:"5" placeholder:"N" help:"Messages published a tick. Default: 5."`
	Sizes    []size           `group:"publisher" default:"1" placeholder:"SIZE" help:"Payload bytes of the messages, in turn, like 100,1KiB. Default: 1."`
	Keys     count            `group:"publisher" placeholder:"N" help:"Conflation keys that the messages have, in turn. Default: none."`
	Drain    []sim.Subscriber `group:"subscribers" default:"1,5" placeholder:"N" help:"Messages that each subscriber takes a tick, one entry a subscriber; 5/40-80 takes nothing from tick 40 up to 80, then goes on. Default: 1,5."`
	Policy   []choice         `group:"subscribers" choices:"drop-newest,drop-oldest,keep-latest,disconnect,reject-publish,all" placeholder:"POLICY" help:"Policies, each in a run of its own: drop-newest, drop-oldest, keep-latest, disconnect, reject-publish or all. Default: all but disconnect."`
	Capacity count            `group:"subscribers" default:"10" placeholder:"N" help:"Limit of each queue in messages. Default: 10."`
	Bytes    size             `group:"subscribers" placeholder:"SIZE" help:"Limit of each queue in payload bytes. Default: none."`
	TTL      count            `group:"subscribers" name:"ttl" placeholder:"TICKS" help:"Drop messages that have waited for longer when their turn comes. Default: never."`
	Order    choice           `group:"publisher" default:"drain-first" choices:"drain-first,publish-first" placeholder:"ORDER" help:"What comes first within a tick: drain-first or publish-first. Default: drain-first."`
	JSON     toggle           `name:"json" help:"Print the results as a JSON array, without the predictions."`

	config sim.Config
}

func (c *simulateCommand) Help() string {
	return "A publisher and subscribers in integer ticks around the server's own queue code: no clock, no randomness, the same answer every time. The table shows beside the messages lost how many the formula predicts, (rate - drain) x ticks - (capacity - drain); where it does not apply, the output says why and by how much it is off."
}

// configure makes the configuration and adds to p all that is wrong with it.
func (c *simulateCommand) configure(p *program) {
	p.positive(map[string]int{
		"ticks":    int(c.Ticks),
		"rate":     int(c.Rate),
		"capacity": int(c.Capacity),
	})
	if _, given := p.sources["bytes"]; given {
		p.positive(map[string]int{"bytes": int(c.Bytes)})
	}
	c.config = sim.Config{
		Policies:    policiesOf(c.Policy),
		Ticks:       int(c.Ticks),
		Rate:        int(c.Rate),
		Capacity:    int(c.Capacity),
		Bytes:       int(c.Bytes),
		Keys:        int(c.Keys),
		TTL:         int(c.TTL),
		Subscribers: c.Drain,
	}
	for _, s := range c.Sizes {
		c.config.Sizes = append(c.config.Sizes, int(s))
	}
	_ = c.config.Order.UnmarshalText([]byte(c.Order)) // one of the flag's choices
	if err := c.config.Validate(); err != nil {
		for _, text := range flatten(err) {
			p.problems.add("%s", text)
		}
	}
}

func (c *simulateCommand) run(_ context.Context, p *program) error {
	results, err := sim.Run(c.config)
	if err != nil {
		return err
	}
	if c.JSON {
		return sim.RenderJSON(p.stdout, results)
	}
	return sim.RenderTable(p.stdout, c.config, results)
}

// policiesOf returns the policies named, each once, in the order in which they
// were; "all" is all of them, none is none.
func policiesOf(names []choice) []queue.Policy {
	var policies []queue.Policy
	for _, name := range names {
		if name == "all" {
			return queue.Policies()
		}
		policy, err := queue.ParsePolicy(string(name))
		if err == nil && !slices.Contains(policies, policy) { // otherwise it is a problem already
			policies = append(policies, policy)
		}
	}
	return policies
}

// parseSubscriber reads the messages that a subscriber takes a tick, and its
// pauses.
func parseSubscriber(text string) (sim.Subscriber, error) {
	var s sim.Subscriber
	if s.UnmarshalText([]byte(text)) != nil {
		return s, fmt.Errorf("write the messages taken a tick, with pauses like 5/40-80")
	}
	return s, nil
}
