package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"hubd/internal/plan"
	"hubd/internal/queue"
)

// planCommand does the arithmetic of queues for an operator.
type planCommand struct {
	Rate        perSecond `group:"publisher" default:"50" placeholder:"N" help:"Messages a second into one room at the peak. Default: 50."`
	Size        size      `group:"publisher" default:"1KiB" placeholder:"SIZE" help:"Payload of one message. Default: 1KiB."`
	Keys        count     `group:"publisher" placeholder:"N" help:"Conflation keys that the messages have: things of which only the latest state counts. Default: none."`
	Subscribers count     `group:"subscribers" default:"1000" placeholder:"N" help:"Subscribers of one room. Default: 1000."`
	Rooms       count     `group:"subscribers" default:"1" placeholder:"N" help:"Rooms that are so full and so busy at a time. Default: 1."`
	Stall       period    `group:"subscribers" default:"2s" placeholder:"TIME" help:"The longest time for which a healthy subscriber may stop reading and lose nothing. Default: 2s."`
	Slow        count     `group:"subscribers" placeholder:"N" help:"How many subscribers of a room are slow. Default: one in a hundred."`
	Drain       perSecond `group:"subscribers" placeholder:"N" help:"Messages a second that each of the slow ones takes. Default: 0, they are stuck."`
	Reconnect   period    `group:"subscribers" default:"2s" placeholder:"TIME" help:"How long a subscriber that was cut off is away. Default: 2s."`

	Policy        []choice `group:"queues" choices:"drop-newest,drop-oldest,keep-latest,disconnect,reject-publish,all" placeholder:"POLICY" help:"Policies to plan for: drop-newest, drop-oldest, keep-latest, disconnect, reject-publish or all. Default: all."`
	Memory        size     `group:"queues" default:"256MiB" placeholder:"SIZE" help:"Memory to spend on full queues. Default: 256MiB."`
	QueueMessages count    `group:"queues" placeholder:"N" help:"Judge queues of so many messages. Default: those recommended."`
	QueueBytes    size     `group:"queues" placeholder:"SIZE" help:"Judge queues of so many payload bytes. Default: those recommended."`
	Encodings     count    `group:"queues" default:"1" placeholder:"N" help:"Encodings in use at a time (raw, JSON, event stream); each holds a copy of a message. Default: 1."`
	OfferCost     period   `group:"queues" default:"20ns" placeholder:"TIME" help:"Processor time of offering a message to one queue. Default: 20ns, as measured."`
	WakeCost      period   `group:"queues" default:"200ns" placeholder:"TIME" help:"Processor time of waking a subscriber's writer. Default: 200ns, as measured."`

	JSON toggle `name:"json" help:"Print the plan as JSON: times in seconds, null where something never happens."`

	input plan.Input
}

func (c *planCommand) Help() string {
	return "Tells for each policy: the limits that let a healthy subscriber survive a stall, how long a slow one lasts and what it loses from then on, how old what it reads can be, memory at worst (every queue full, no two of the same messages) and likely (the slow ones full of the same). It warns where a larger queue would only delay the certain. \"hubd simulate\" runs the queues that this reckons with."
}

// configure makes the input and adds to p all that is wrong with it.
func (c *planCommand) configure(p *program) {
	values := map[string]int{
		"size":        int(c.Size),
		"subscribers": int(c.Subscribers),
		"rooms":       int(c.Rooms),
		"stall":       int(c.Stall),
		"reconnect":   int(c.Reconnect),
		"memory":      int(c.Memory),
		"encodings":   int(c.Encodings),
		"offer-cost":  int(c.OfferCost),
		"wake-cost":   int(c.WakeCost),
	}
	// What these would have to be without the flag is no number.
	for flag, value := range map[string]int{
		"slow":           int(c.Slow),
		"queue-messages": int(c.QueueMessages),
		"queue-bytes":    int(c.QueueBytes),
	} {
		if _, given := p.sources[flag]; given {
			values[flag] = value
		}
	}
	p.positive(values)
	if c.Rate == 0 && !p.rejected("rate") {
		p.wrong("rate", "it must be more than 0")
	}
	c.input = plan.Input{
		Policies:    policiesOf(c.Policy),
		Rate:        float64(c.Rate),
		Size:        int(c.Size),
		Keys:        int(c.Keys),
		Stall:       time.Duration(c.Stall),
		Subscribers: int(c.Subscribers),
		Rooms:       int(c.Rooms),
		Slow:        int(c.Slow),
		Drain:       float64(c.Drain),
		Memory:      int64(c.Memory),
		Queue:       queue.Limits{Messages: int(c.QueueMessages), Bytes: int(c.QueueBytes)},
		Reconnect:   time.Duration(c.Reconnect),
		Encodings:   int(c.Encodings),
		OfferCost:   time.Duration(c.OfferCost),
		WakeCost:    time.Duration(c.WakeCost),
	}
	if err := c.input.Validate(); err != nil {
		for _, text := range flatten(err) {
			p.problems.add("%s", text)
		}
	}
}

func (c *planCommand) run(_ context.Context, p *program) error {
	report, err := plan.New(c.input)
	if err != nil {
		return err
	}
	if c.JSON {
		return plan.RenderJSON(p.stdout, report)
	}
	return plan.RenderTable(p.stdout, report)
}

// perSecond is a number of messages a second, 0 or more.
type perSecond float64

func (r perSecond) String() string { return strconv.FormatFloat(float64(r), 'f', -1, 64) }

func parsePerSecond(text string) (perSecond, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
	if err != nil || !(n >= 0 && n <= 1e9) {
		return 0, errors.New("write messages a second like 50 or 0.5")
	}
	return perSecond(n), nil
}
