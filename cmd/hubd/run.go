package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit statuses of every command.
const (
	exitOK    = 0
	exitFault = 1 // something failed while running
	exitUsage = 2 // the command line, the environment or the file is wrong
)

// commands is the grammar of the command line: a field for each command, in
// the order of the help.
type commands struct {
	Help helpFlag `short:"h" help:"Show this help, or that of a command."`

	Serve    serveCommand    `cmd:"" default:"withargs" help:"Run the server. This is what hubd does when no command is given."`
	Demo     demoCommand     `cmd:"" help:"See in twenty seconds who pays for a slow subscriber under each policy."`
	Simulate simulateCommand `cmd:"" help:"Show what a policy costs: run the server's queues on numbers of your choosing."`
	Plan     planCommand     `cmd:"" help:"Work out what limits queues should have, and what comes of it: loss, age, memory."`
	Publish  publishCommand  `cmd:"" help:"Publish a message to a room: the argument, or each line of standard input."`
	Tail     tailCommand     `cmd:"" help:"Follow rooms: print their messages, and every loss, as they come."`
	Token    tokenCommand    `cmd:"" help:"Make a token for testing, for a server that asks for tokens."`
	Config   configCommand   `cmd:"" help:"Check a configuration of the server and print the effective one."`
	Health   healthCommand   `cmd:"" help:"Ask a running server whether it is alive; for container health checks."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

const description = `hubd is a WebSocket fan-out server: every message published to a room goes to all who joined it, and a slow subscriber costs nobody else anything.

Every flag can also be set by an environment variable: --drain-window is HUBD_DRAIN_WINDOW. A flag wins over its variable.`

// program is one run of the command line, with what it may touch of the
// process around it.
type program struct {
	env    environment
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	dumb   bool // a terminal, if there is one, can only append

	// problems collects what is wrong with flags and variables while they are
	// parsed, so that all is reported at once.
	problems problems
	// sources tells by flag name where a value came from, if not the default.
	sources map[string]source
	flags   []*kong.Flag // of the selected command
}

// run executes one command line and returns its exit status. It touches
// nothing of the process but what it is given, and returns when ctx is done.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{
		env:     newEnvironment(env),
		stdin:   stdin,
		stdout:  stdout,
		stderr:  stderr,
		dumb:    slices.Contains(env, "TERM=dumb"),
		sources: make(map[string]source),
	}
	err := p.execute(ctx, args)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, errHelpShown):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprint(stderr, usage.report())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "hubd: %v\n", err)
		return exitFault
	}
}

// command is what the struct of each command implements. Problems of the flags
// that showed while parsing are in p already.
type command interface {
	run(ctx context.Context, p *program) error
}

func (p *program) execute(ctx context.Context, args []string) error {
	var grammar commands
	parser, err := p.parser(&grammar)
	if err != nil {
		return fmt.Errorf("build the command line: %w", err)
	}
	parsed, err := p.parse(parser, args)
	if err != nil {
		return err
	}
	selected := parsed.Selected().Target.Addr().Interface().(command)
	if _, ok := selected.(*versionCommand); !ok {
		p.problems = append(p.problems, p.env.unknown(parser.Model)...)
	}
	if c, ok := selected.(configured); ok {
		// Its settings depend on each other: what the whole configuration
		// lacks is reported together with what single flags got wrong.
		c.configure(p)
	}
	if err := p.problems.err(parsed.Command()); err != nil {
		return err
	}
	return selected.run(ctx, p)
}

// configured is a command whose configuration is checked as a whole.
type configured interface {
	configure(p *program)
}

func (p *program) parser(grammar *commands) (*kong.Kong, error) {
	options := []kong.Option{
		kong.Name("hubd"),
		kong.Description(description),
		kong.Writers(p.stdout, p.stderr),
		kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{
			Compact:             true,
			NoExpandSubcommands: true,
			FlagsLast:           true,
			WrapUpperBound:      100,
		}),
		kong.Resolvers(p.env.resolver()),
		kong.ExplicitGroups(flagGroups),
	}
	return kong.New(grammar, append(options, p.mappers()...)...)
}

// The wordings of the parser for a flag that it does not know, a word that has
// no place, and a flag without its value.
var (
	unknownFlag    = regexp.MustCompile(`^unknown flag (-\S+?)(,|$)`)
	unexpectedWord = regexp.MustCompile(`^unexpected argument (\S+?)(,|$)`)
	missingValue   = regexp.MustCompile(`^(-\S+): expected \S+ value but got`)
)

// parse parses args. An unknown flag is noted and left out, so that the others
// are looked at as well; any other mistake of the command line ends it.
func (p *program) parse(parser *kong.Kong, args []string) (*kong.Context, error) {
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	for {
		p.sources = make(map[string]source)
		parsed, err := parser.Parse(args)
		if err == nil {
			p.note(parsed)
			return parsed, nil
		}
		if errors.Is(err, errHelpShown) {
			return nil, err
		}
		if match := unknownFlag.FindStringSubmatch(err.Error()); match != nil {
			if rest, found := without(args, match[1]); found {
				p.problems.add("%v", err)
				args = rest
				continue
			}
		}
		return nil, p.misuse(parser, args, err)
	}
}

// misuse words a mistake of the command line that ended its parsing.
func (p *program) misuse(parser *kong.Kong, args []string, err error) error {
	command := ""
	var failed *kong.ParseError
	if errors.As(err, &failed) && failed.Context.Selected() != nil {
		command = failed.Context.Selected().Name
	}
	text := err.Error()
	if match := missingValue.FindStringSubmatch(text); match != nil {
		text = match[1] + ": a value must follow"
	}
	if match := unexpectedWord.FindStringSubmatch(text); match != nil && !slices.Contains(args, command) {
		// No command was named, so the word was meant as one.
		var names []string
		for _, node := range parser.Model.Children {
			names = append(names, node.Name)
		}
		text = fmt.Sprintf("there is no command %s; %s", printable(match[1]), didYouMean(match[1], names))
		command = ""
	}
	p.problems.add("%s", text)
	return p.problems.err(command)
}

// note remembers the selected command's flags and where their values are from.
func (p *program) note(parsed *kong.Context) {
	p.flags = parsed.Selected().Flags
	for _, step := range parsed.Path {
		if step.Flag == nil {
			continue
		}
		if step.Resolved {
			p.sources[step.Flag.Name] = sourceEnv
		} else {
			p.sources[step.Flag.Name] = sourceFlag
		}
	}
}

// without returns args without the first use of an unknown flag, and without
// the word after it if that looks like its value.
func without(args []string, flag string) ([]string, bool) {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if name, _, inline := strings.Cut(arg, "="); name == flag {
			end := i + 1
			if !inline && end < len(args) && !strings.HasPrefix(args[end], "-") {
				end++
			}
			return slices.Delete(slices.Clone(args), i, end), true
		}
	}
	return args, false
}

var errHelpShown = errors.New("help shown")

// helpFlag prints help in place of running the command. The parser's own one
// would end the process.
type helpFlag bool

func (helpFlag) IgnoreDefault() {}

func (helpFlag) BeforeReset(parsed *kong.Context) error {
	if err := parsed.PrintUsage(false); err != nil {
		return err
	}
	return errHelpShown
}
