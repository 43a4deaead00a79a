package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the same for all figures; 0 is the figure's own default.
type options struct {
	rounds      int
	duration    time.Duration // of one run
	subscribers int
	seed        uint64
	profile     string // folder for processor profiles of hubd, "": none
	baseline    string // path of another hubd to take its turn, "": none
	servers     string // names of those to take a turn, with commas between; "": all
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// variant is a server under a name.
type variant struct {
	name string
	spec spec
}

// chosen returns those of servers that o asks for, with the baseline if there
// is one.
func (o options) chosen(servers []variant) ([]variant, error) {
	if o.baseline != "" {
		servers = slices.Insert(slices.Clone(servers), 1, variant{"baseline", spec{binary: o.baseline}})
	}
	if o.servers == "" {
		return servers, nil
	}
	var only []variant
	for name := range strings.SplitSeq(o.servers, ",") {
		i := slices.IndexFunc(servers, func(v variant) bool { return v.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--servers: there is no %q here", name)
		}
		only = append(only, servers[i])
	}
	return only, nil
}

// measurement is a figure that can be asked for.
type measurement struct {
	name, title string
	run         func(context.Context, *lab, options) (*figure, error)
}

var measurements = []measurement{
	{"isolation", "what stuck subscribers cost the others", isolation},
	{"eviction", "how fast many slow consumers are gone, and what publishers notice", eviction},
	{"freshness", "how old is what a slow reader under keep-latest gets", freshness},
	{"encodings", "how often a message is encoded", encodings},
	{"throughput", "deliveries a second and their cost, beside peer servers", throughput},
	{"churn", "whether every frame is accounted for after random use", churn},
	{"idle", "memory of an idle connection", idle},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == "peer" {
		return servePeer(args[1], stderr)
	}
	var (
		o      options
		where  = labOptions{log: stderr}
		asJSON bool
	)
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { usage(flags) }
	flags.IntVar(&o.rounds, "rounds", 0, "rounds, in each of which every case takes its turn (0: as the figure has it)")
	flags.DurationVar(&o.duration, "duration", 0, "length of one run (0: as the figure has it)")
	flags.IntVar(&o.subscribers, "subscribers", 0, "subscribers (0: as the figure has it)")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of churn (0: a random one, which is printed)")
	flags.StringVar(&o.profile, "profile", "", "write processor profiles of hubd under load into this `folder` (throughput)")
	flags.StringVar(&o.baseline, "baseline", "", "let this `binary` of hubd take its turn as well (throughput, idle)")
	flags.StringVar(&o.servers, "servers", "", "only these, such as hubd,baseline (throughput, idle)")
	flags.BoolVar(&asJSON, "json", false, "print JSON in place of tables")
	flags.StringVar(&where.binary, "hubd", "", "measure this `binary` rather than building one")
	flags.StringVar(&where.source, "source", "..", "build hubd from the module in this `folder`")
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	chosen, err := choose(names)
	if err != nil {
		flags.Usage()
		return err
	}
	if err := raiseFileLimit(); err != nil {
		return fmt.Errorf("raising the limit on open files: %w", err)
	}
	l, err := newLab(ctx, where)
	if err != nil {
		return err
	}
	return errors.Join(report(ctx, l, chosen, o, stdout, asJSON), l.close())
}

// parse takes flags before and after the names of figures.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return names, nil
		}
		names = append(names, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func choose(names []string) ([]measurement, error) {
	if len(names) == 0 {
		return nil, errors.New("name a figure")
	}
	var chosen []measurement
	for _, name := range names {
		if name == "all" {
			return measurements, nil
		}
		before := len(chosen)
		for _, m := range measurements {
			if m.name == name {
				chosen = append(chosen, m)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("there is no figure %q", name)
		}
	}
	return chosen, nil
}

func usage(flags *flag.FlagSet) {
	w := flags.Output()
	fmt.Fprintf(w, "bench measures hubd over the wire.\n\nUsage: go run . FIGURE... [flags]\n\nFigures:\n")
	for _, m := range measurements {
		fmt.Fprintf(w, "  %-12s%s\n", m.name, m.title)
	}
	fmt.Fprintf(w, "  %-12sall of them\n\n`go run . peer NAME` runs a peer server (%s) until it is stopped.\n\nFlags:\n",
		"all", strings.Join(peerNames(), ", "))
	flags.PrintDefaults()
}

var errFailed = errors.New("a figure that must be exact is not")

func report(ctx context.Context, l *lab, chosen []measurement, o options, stdout io.Writer, asJSON bool) error {
	var figures []*figure
	var failure error
	for _, m := range chosen {
		f, err := m.run(ctx, l, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		f.Name, f.Title = m.name, m.title
		figures = append(figures, f)
		if f.failed() {
			failure = errFailed
		}
		if !asJSON {
			if err := f.writeText(stdout); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return errors.Join(failure, writeJSON(stdout, figures))
	}
	return failure
}

// turns calls f for every case in every round. The order rotates, so that none
// always comes first or always after the same other.
func turns[T any](rounds int, cases []T, f func(round int, c T) error) error {
	for round := range rounds {
		for i := range cases {
			if err := f(round, cases[(i+round)%len(cases)]); err != nil {
				return err
			}
		}
	}
	return nil
}
