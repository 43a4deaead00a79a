package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// reexec makes the test binary be the program, for tests that need a process.
const reexec = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(reexec) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is the program with args as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), reexec+"=1")
	return cmd
}

// outcome is what a command line came to.
type outcome struct {
	status int
	stdout string
	stderr string
}

// invocation is a command line and what is around it.
type invocation struct {
	args  []string
	env   []string
	stdin string
}

func (i invocation) run(ctx context.Context) outcome {
	var stdout, stderr bytes.Buffer
	status := run(ctx, i.args, i.env, strings.NewReader(i.stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// hubd runs a command line in this process.
func hubd(t *testing.T, args ...string) outcome {
	t.Helper()
	return invocation{args: args}.run(t.Context())
}

func (o outcome) want(t *testing.T, status int, inStdout, inStderr string) {
	t.Helper()
	if o.status != status {
		t.Errorf("status %d, want %d", o.status, status)
	}
	if !strings.Contains(o.stdout, inStdout) || (inStdout == "" && o.stdout != "") {
		t.Errorf("stdout %q, want %q in it", o.stdout, inStdout)
	}
	if !strings.Contains(o.stderr, inStderr) || (inStderr == "" && o.stderr != "") {
		t.Errorf("stderr %q, want %q in it", o.stderr, inStderr)
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", o.stdout, o.stderr)
	}
}

func TestSupervise(t *testing.T) {
	t.Run("the command's status is the program's", func(t *testing.T) {
		if got := supervise(nil, func(context.Context) int { return 2 }); got != 2 {
			t.Errorf("status %d, want 2", got)
		}
	})
	t.Run("the first signal asks the command to end", func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		got := supervise(signals, func(ctx context.Context) int {
			<-ctx.Done()
			return 0
		})
		if got != 0 {
			t.Errorf("status %d, want 0", got)
		}
	})
	t.Run("the second one ends a command that does not", func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		stuck := make(chan struct{})
		defer close(stuck)
		got := supervise(signals, func(context.Context) int {
			<-stuck
			return 0
		})
		if got != 1 {
			t.Errorf("status %d, want 1", got)
		}
	})
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}} {
		hubd(t, args...).want(t, 0, "Usage: hubd <command>", "")
	}
	for _, command := range []string{"serve", "demo", "simulate", "plan", "publish", "tail", "token", "config", "health", "version"} {
		hubd(t, command, "--help").want(t, 0, "Usage: hubd "+command, "")
		hubd(t, "help", command).want(t, 0, "Usage: hubd "+command, "")
	}
	// Help is to be had whatever else is wrong.
	invocation{args: []string{"serve", "--help"}, env: []string{"HUBD_NONSENSE=1"}}.run(t.Context()).
		want(t, 0, "Usage: hubd serve", "")
}

func TestMisuse(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"tial", "lobby"}, "there is no command tial; did you mean tail?\nRun \"hubd --help\""},
		{[]string{"nonsense"}, "there is no command nonsense; known: serve, demo, simulate, plan, publish"},
		{[]string{"serve", "extra"}, "unexpected argument extra\nRun \"hubd serve --help\""},
		{[]string{"--drain-windw", "3s"}, `unknown flag --drain-windw, did you mean "--drain-window"?`},
		{[]string{"serve", "--addr"}, "--addr: a value must follow"},
		{[]string{"publish"}, `expected "<room>"`},
		{[]string{"publish", ""}, "the room's name is empty"},
		{[]string{"publish", "lobby", "x", "--whole"}, "give one of them"},
		{[]string{"publish", "lobby", "x", "--quiet", "--json"}, "can't be used together"},
		{[]string{"publish", "lobby", "x", "--type", "xml"}, `--type "xml": write one of text, json, binary`},
		{[]string{"publish", "lobby", "x", "--url", "localhost:8080"}, "write it like http://127.0.0.1:8080"},
		{[]string{"tail"}, `expected "<room> ..."`},
		{[]string{"tail", "a", ""}, "the name of a room is empty"},
		{[]string{"tail", "a", "a"}, "room a is named twice"},
		{[]string{"tail", "a", "b", "--after", "e:1"}, "--after is a position in one room"},
		{[]string{"tail", "a", "--after", "e"}, "write EPOCH:SEQ"},
		{[]string{"tail", "a", "--slow", "0"}, `--slow "0": write bytes a second`},
		{[]string{"tail", "a", "--policy", "keep"}, `--policy "keep": write one of drop-newest`},
		{[]string{"tail", "a", "--url", "ftp://x"}, "is not the address of a server"},
		{[]string{"health", "--url", "x"}, "is not the address of a server"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			hubd(t, test.args...).want(t, 2, "", test.want)
		})
	}
}

func TestVersion(t *testing.T) {
	hubd(t, "version").want(t, 0, "hubd devel (revision ", "")
	// It tells what runs even where the environment is in disorder.
	invocation{args: []string{"version"}, env: []string{"HUBD_X=1"}}.run(t.Context()).want(t, 0, "hubd ", "")
}

// failingWriter is an output that is gone, as a closed pipe.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestOutputFails(t *testing.T) {
	for _, command := range []string{"version", "config"} {
		var stderr bytes.Buffer
		status := run(t.Context(), []string{command}, nil, nil, failingWriter{}, &stderr)
		outcome{status: status, stderr: stderr.String()}.want(t, 1, "", "closed pipe")
	}
}
