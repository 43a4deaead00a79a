package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSimulateDefaults: without flags it is the scenario whose figures are
// promised.
func TestSimulateDefaults(t *testing.T) {
	want := `
200 ticks, 5 messages a tick, queues of 10 messages, drain-first; ages in ticks, messages numbered from 0

policy          published  refused  drain  sent  lost  predicted  queued  last sent  mean age  max age
drop-newest          1000        0      1   199   791        791      10        945      9.74       10
                                        5   995     0          0       5        994      1.00        1
drop-oldest          1000        0      1   199   791        791      10        985      1.99        2
                                        5   995     0          0       5        994      1.00        1
keep-latest          1000        0      1   199   800        791       1        988      1.40        2
                                        5   995     0          0       5        994      1.00        1
reject-publish        209      791      1   199     0          0      10        198      9.74       10
                                        5   208     0          0       1        207      1.00        1

keep-latest, drain 1: clearing the queue gives its credit back: 9 more than the formula says
`
	got := hubd(t, "simulate")
	if got.status != 0 || "\n"+got.stdout != want || got.stderr != "" {
		t.Errorf("status %d, got%s\nwant%s\nstderr %q", got.status, "\n"+got.stdout, want, got.stderr)
	}
}

func TestSimulateJSON(t *testing.T) {
	got := hubd(t, "simulate", "--json")
	got.want(t, 0, "[", "")
	var results []struct {
		Policy             string
		Published, Refused int
		Subscribers        []map[string]float64
	}
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&results); err != nil {
		t.Fatal(err)
	}
	if len(results) != 4 || results[3].Policy != "reject-publish" || results[3].Published != 209 || results[3].Refused != 791 {
		t.Errorf("got %+v", results)
	}
	for name, want := range map[string]float64{"drain": 1, "sent": 199, "lost": 800, "queued": 1, "last_sent": 988, "mean_age": 1.40, "max_age": 2} {
		if got := results[2].Subscribers[0][name]; got != want {
			t.Errorf("keep-latest: %s is %v, want %v", name, got, want)
		}
		delete(results[2].Subscribers[0], name)
	}
	if rest := results[2].Subscribers[0]; len(rest) != 0 {
		t.Errorf("also %v", rest)
	}
}

// TestSimulateFlags: each flag has its effect, alone or beside another.
func TestSimulateFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--ticks 100", "100 ticks, 5 messages a tick"},
		{"--ticks 100", "drop-newest           500        0      1    99   391        391 "},
		{"--rate 2 --capacity 199", "     1   199     2          2     199 "},
		{"--rate 2 --capacity 201", "     1   199     0          0     201 "},
		{"--order publish-first", "     1   200   791        791       9 "},
		{"--policy all", "\ndisconnect           1000        0      1     2    11         11       0 "},
		{"--policy all", "disconnect, drain 1: cut off in tick 2; 987 messages came afterwards\n"},
		{"--policy drop-oldest,disconnect", "5   995     0          0       5        994      1.00        1\ndisconnect "},
		{"--policy keep-latest --keys 3", "3 keys in turn"},
		{"--capacity 50 --bytes 1000 --sizes 100", "     1   199   791        791      10 "},
		{"--bytes 1KiB --sizes 100,300", "sizes differ under a byte limit that counts: "},
		{"--ttl 3", "drop-newest, drain 1: a ttl drops what waits: as the formula says all the same\n"},
		{"--drain 5/40-80", "drop-newest, drain 5/40-80: the subscriber pauses: 195 more than the formula says\n"},
		{"--rate 20", "the 20 messages of a tick do not fit a queue of 10: "},
	} {
		t.Run(test.args, func(t *testing.T) {
			hubd(t, append([]string{"simulate"}, strings.Fields(test.args)...)...).want(t, 0, test.want, "")
		})
	}
	if got := hubd(t, "simulate", "--policy", "drop-oldest,disconnect", "--policy=drop-oldest"); strings.Count(got.stdout, "drop-oldest") != 1 {
		t.Errorf("a policy named twice is run twice:\n%s", got.stdout)
	}
	invocation{args: []string{"simulate"}, env: []string{"HUBD_TICKS=7", "HUBD_DRAIN=3"}}.run(t.Context()).want(t, 0, "7 ticks", "")
}

// TestPoliciesDocument holds the document on policies to what the commands say.
func TestPoliciesDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(document)
	_, table, _ := strings.Cut(hubd(t, "simulate").stdout, "\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !strings.Contains(text, "```\n"+table+"\n```") {
		t.Errorf("the table of simulate is not:\n%s", table)
	}
	_, feeds, _ := strings.Cut(text, "```yaml\n")
	feeds, _, _ = strings.Cut(feeds, "```")
	hubd(t, "config", "--config", file(t, feeds)).want(t, 0, `name: "audit"`, "")
	for _, match := range regexp.MustCompile("(?m)^hubd ((simulate|plan) .*)$|`hubd ((?:simulate|plan) --[^`]*)`").FindAllStringSubmatch(text, -1) {
		got := hubd(t, strings.Fields(match[1]+match[3])...)
		got.want(t, 0, " ", "")
	}
	for args, want := range map[string]string{
		"plan --policy disconnect --rate 5 --size 300 --stall 30s --subscribers 5000 --slow 50 --drain 1":       "151, 64 KiB, 37.8 s, 1.26/s, 926 KiB, 887 MiB",
		"plan --policy keep-latest --rate 10 --size 200 --subscribers 20000 --drain 2":                          "1, 64 KiB, 100 ms, 50.6 KiB, 4.4 ms",
		"plan --policy drop-oldest,drop-newest --rate 2 --size 500 --stall 60s --subscribers 10000 --drain 0.5": "121, 64 KiB, 60.5 s, 4.03 min",
		"plan --policy keep-latest --rate 600 --keys 30 --size 100 --subscribers 300 --rooms 100 --drain 100":   "31, 64 KiB, 310 ms, 396%",
		"plan --policy reject-publish --rate 20 --size 1KiB --stall 10s --subscribers 5 --slow 1 --drain 5":     "201, 201 KiB, 75%, 13.4 s",
	} {
		if !strings.Contains(text, "hubd "+args+"\n") {
			t.Errorf("the document has no %s", args)
		}
		got := hubd(t, strings.Fields(args)...).stdout
		for _, figure := range strings.Split(want, ", ") {
			if !strings.Contains(got, " "+figure) {
				t.Errorf("%s says no longer %s", args, figure)
			}
		}
	}
}

func TestSimulateMisuse(t *testing.T) {
	got := hubd(t, "simulate", "--rate", "0", "--ticks", "x", "--drain", "1,a", "--policy", "foo", "--bytes", "0",
		"--order", "drain", "--sizes=-1", "--capacity", "2000000000000")
	got.want(t, 2, "", "hubd: 8 problems:\n")
	for _, want := range []string{
		"--rate: it must be more than 0\n",
		`--ticks "x": write a whole number`,
		`--drain "a": write the messages taken a tick, with pauses like 5/40-80` + "\n",
		`--policy "foo": write one of drop-newest, `,
		"--bytes: it must be more than 0\n",
		`--order "drain": write one of drain-first, publish-first`,
		`--sizes "-1": write a size in bytes`,
		`--capacity "2000000000000": write a whole number`,
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in\n%s", want, got.stderr)
		}
	}
	for _, test := range []struct{ args, want string }{
		{"--drain 5/80-40", "pause 80-40: must end after it begins"},
		{"--ticks 1000000 --rate 1000", "more than 100000000 messages: lower either"},
	} {
		hubd(t, append([]string{"simulate"}, strings.Fields(test.args)...)...).want(t, 2, "", test.want)
	}
}
