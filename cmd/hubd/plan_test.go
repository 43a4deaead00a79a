package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlanDefaults(t *testing.T) {
	hubd(t, "plan").want(t, 0, `At the peak 50 messages a second of 1 KiB a room; 1 room of 1000 subscribers, of which 10 take nothing.
A stall to survive is 2 s, the memory to spend 256 MiB.

                          drop-newest   drop-oldest   keep-latest   disconnect    reject-publish
recommended, messages     101           101           1             101           101
recommended, bytes        101 KiB       101 KiB       64 KiB        101 KiB       101 KiB
stall without loss        2.02 s        2.02 s        20 ms         2.02 s        2.02 s
`, "")
}

// TestPlanFlags: each flag has its effect.
func TestPlanFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--rate 0.5", "\nslow ones overflow after  4 s "},
		{"--rate 0.5/s", "At the peak 0.5 messages a second of 1 KiB"},
		{"--size 2KiB --memory 1GiB", "\nrecommended, bytes        202 KiB "},
		{"--keys 40 --policy keep-latest", "\nrecommended, messages     41\n"},
		{"--subscribers 300", "1 room of 300 subscribers, of which 3 take"},
		{"--rooms 3", "3 rooms of 1000"},
		{"--stall 10s --memory 2GiB", "\nrecommended, messages     501 "},
		{"--slow 7", "of which 7 take nothing"},
		{"--drain 10", "\noldest they read          10.1 s       2.02 s "},
		{"--reconnect 4s --policy disconnect", "\nreconnects                1.66/s\n"},
		{"--policy drop-oldest,disconnect", "                          drop-oldest   disconnect\n"},
		{"--policy all", "drop-newest   drop-oldest   keep-latest   disconnect    reject-publish\n"},
		{"--memory 1MiB", "no queue, however small, keeps the worst case within 1 MiB."},
		{"--queue-messages 20", "\ngiven, messages           20 "},
		{"--queue-bytes 10KiB", "\ngiven, bytes              10 KiB "},
		{"--encodings 3 --memory 8GiB --queue-bytes 1MiB", "\nmemory at worst           3.94 GiB "},
		{"--offer-cost 1us", "takes 1 ms, or 1.2 ms where"},
		{"--wake-cost 1us", "takes 20 µs, or 1.02 ms where"},
		{"", "A larger queue delays the certain; it pays only for stalls that end.\n"},
	} {
		t.Run(test.args, func(t *testing.T) {
			hubd(t, append([]string{"plan"}, strings.Fields(test.args)...)...).want(t, 0, test.want, "")
		})
	}
}

func TestPlanJSON(t *testing.T) {
	got := hubd(t, "plan", "--json", "--drain", "10", "--policy", "drop-oldest")
	got.want(t, 0, "{", "")
	var report struct {
		Input    struct{ Drain float64 }
		Policies []struct {
			Policy    string
			Staleness float64 `json:"staleness_s"`
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Input.Drain != 10 || len(report.Policies) != 1 || report.Policies[0].Policy != "drop-oldest" || report.Policies[0].Staleness != 2.02 {
		t.Errorf("%+v", report)
	}
}

func TestPlanMisuse(t *testing.T) {
	got := hubd(t, "plan", "--rate", "0", "--size", "x", "--drain=-1", "--slow", "0", "--policy", "foo", "--queue-bytes", "0",
		"--stall", "0", "--rooms", "0", "--memory", "0")
	got.want(t, 2, "", "hubd: 9 problems:\n")
	for _, want := range []string{
		"--rate: it must be more than 0\n",
		`--size "x": write a size in bytes`,
		`--drain "-1": write messages a second like 50 or 0.5` + "\n",
		"--slow: it must be more than 0\n",
		`--policy "foo": write one of drop-newest, `,
		"--queue-bytes: it must be more than 0\n",
		"--stall: it must be more than 0\n",
		"--rooms: it must be more than 0\n",
		"--memory: it must be more than 0\n",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in\n%s", want, got.stderr)
		}
	}
	hubd(t, "plan", "--slow", "5", "--subscribers", "4").want(t, 2, "", "5 of 4 subscribers are slow")
	hubd(t, "plan", "--rate", "NaN").want(t, 2, "", `--rate "NaN": write messages a second`)
}
