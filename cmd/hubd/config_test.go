package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file writes a configuration file and returns its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "hubd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConfigReportsAllProblemsAtOnce(t *testing.T) {
	name := file(t, `feeds:
  - name: chat
    match: ["chat.*"]
    polciy: disconnect
  - name: Prices
    match: [prices.*]
    queue: {messages: 0}
`)
	got := invocation{
		args: []string{
			"config", "--config", name, "--addr", "0.0.0.0:8080", "--no-such", "--nor-that=1",
			"--max-rooms-per-connection", "0", "--max-message-bytes", "64KB", "--allowed-origins", "*",
		},
		env: []string{"HUBD_PING_INTERVAL=fast", "HUBD_MAX_CONECTIONS=5", "HUBD_COMPRESSION=maybe", "HOME=/"},
	}.run(t.Context())
	got.want(t, 2, "", "hubd: 11 problems:\n")
	for _, want := range []string{
		`  unknown flag --no-such`,
		`  unknown flag --nor-that`,
		`  --max-message-bytes "64KB": write a size in bytes like 65536, 64KiB or 1MiB`,
		`  HUBD_PING_INTERVAL "fast": write a duration like 500ms, 25s or 1m30s`,
		`  HUBD_COMPRESSION "maybe": write true or false`,
		`  HUBD_MAX_CONECTIONS: unknown variable; did you mean HUBD_MAX_CONNECTIONS?`,
		`  ` + name + `:4: unknown key "polciy"; did you mean policy?`,
		`  ` + name + `:7: messages "0": write a whole number, 1 or more`,
		`  --addr: 0.0.0.0:8080 can be reached from other machines`,
		`  --max-rooms-per-connection: it must be more than 0`,
		`  --allowed-origins: "*" would let any page in; list the sites one by one`,
	} {
		if !strings.Contains(got.stderr, want+"\n") && !strings.Contains(got.stderr, want+",") {
			t.Errorf("no line %q in\n%s", want, got.stderr)
		}
	}
	if n := strings.Count(got.stderr, "\n"); n != 13 { // the number, each problem, the hint
		t.Errorf("%d lines, want 13:\n%s", n, got.stderr)
	}
}

func TestConfigProblems(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		env  []string
		want string // the problem, "" for none
	}{
		{name: "nothing at all"},
		{name: "loopback v6", args: []string{"--addr", "[::1]:0"}},
		{name: "loopback name", args: []string{"--addr", "LocalHost:0"}},
		{name: "loopback mapped", args: []string{"--addr", "[::ffff:127.0.0.1]:0"}},
		{name: "all of them", args: []string{"--addr", ":8080"}, want: "--addr: :8080 can be reached from other machines, and without authentication whoever reaches it may read, publish and end connections; ask for tokens (--auth-hmac-secret, --auth-public-key, --auth-jwks-url), listen on 127.0.0.1, or accept that with --insecure"},
		{name: "accepted", args: []string{"--addr", ":8080", "--insecure"}},
		{name: "accepted by variable", env: []string{"HUBD_ADDR=:8080", "HUBD_INSECURE=true"}},
		{name: "refused by flag over variable", args: []string{"--insecure=false"}, env: []string{"HUBD_ADDR=:8080", "HUBD_INSECURE=true"}, want: "HUBD_ADDR: :8080 can be reached"},
		{name: "name of another machine", args: []string{"--addr", "hub.example.com:80"}, want: "can be reached from other machines"},
		{name: "admin elsewhere", args: []string{"--admin-addr", "0.0.0.0:9090"}, want: "--admin-addr: 0.0.0.0:9090 can be reached"},
		{name: "admin at the same place", args: []string{"--admin-addr", "127.0.0.1:8080"}, want: "--admin-addr: it is the same as --addr"},
		{name: "no port", args: []string{"--addr", "localhost"}, want: `--addr: "localhost" is not HOST:PORT; write 127.0.0.1:8080`},
		{name: "wrong port", args: []string{"--addr", "localhost:http"}, want: `--addr: port "http" is not a number from 0 to 65535`},
		{name: "large port", args: []string{"--addr", "localhost:65536"}, want: `port "65536" is not a number`},
		{name: "public url", args: []string{"--public-url", "https://Hub.example.com/"}},
		{name: "public url with path", args: []string{"--public-url", "https://example.com/hub"}, want: `--public-url: "https://example.com/hub" is not the root of a site`},
		{name: "public url without scheme", args: []string{"--public-url", "example.com"}, want: `is not the root of a site`},
		{name: "origins", args: []string{"--allowed-origins", "https://a.example,http://b.example:8080"}},
		{name: "origin null", args: []string{"--allowed-origins", "null"}, want: `"null" would let any page in`},
		{name: "origin with path", args: []string{"--allowed-origins", "https://a.example/"}, want: `"https://a.example/" is not an origin`},
		{name: "origin pattern", args: []string{"--allowed-origins", "https://*.example"}, want: `patterns are not supported`},
		{name: "second origin wrong", args: []string{"--allowed-origins", "https://a.example, b"}, want: `"b" is not an origin`},
		{name: "more connections than files", args: []string{"--max-connections", "2000000000"}, want: "--max-connections: 2000000000 connections need more open files than"},
		{name: "negative number", args: []string{"--max-connections=-1"}, want: `--max-connections "-1": write a whole number, 0 or more`},
		{name: "negative duration", args: []string{"--write-timeout=-1s"}, want: `--write-timeout "-1s": write a duration`},
		{name: "no write timeout", args: []string{"--write-timeout", "0"}, want: `--write-timeout: it must be more than 0`},
		{name: "system's unsent bytes", args: []string{"--max-unsent-bytes", "0"}},
		{name: "drain at once", args: []string{"--drain-window", "0"}},
		{name: "log level", args: []string{"--log-level", "trace"}, want: `--log-level "trace": write one of debug, info, warn, error`},
		{name: "empty variable", env: []string{"HUBD_LOG_LEVEL="}},
		{name: "unknown variable, unlike any", env: []string{"HUBD_SOMETHING_ELSE=1"}, want: "HUBD_SOMETHING_ELSE: unknown variable; unset it"},
		{name: "empty unknown variable", env: []string{"HUBD_ADR="}, want: "HUBD_ADR: unknown variable; did you mean HUBD_ADDR?"},
		{name: "variables of other commands", env: []string{"HUBD_URL=http://x", "HUBD_TOKEN=t"}},
		{name: "variables of a cluster", env: []string{
			"HUBD_SERVICE_HOST=10.0.0.1", "HUBD_SERVICE_PORT=80", "HUBD_SERVICE_PORT_HTTP=80",
			"HUBD_PORT=tcp://10.0.0.1:80", "HUBD_PORT_80_TCP=tcp://10.0.0.1:80", "HUBD_PORT_80_TCP_PROTO=tcp",
			"HUBD_PORT_80_TCP_PORT=80", "HUBD_PORT_80_TCP_ADDR=10.0.0.1",
		}},
		{name: "a person's port", env: []string{"HUBD_PORT=8080"}, want: "HUBD_PORT: unknown variable"},
		{name: "large messages and the built-in feed", args: []string{"--max-message-bytes", "2MiB"}},
		{name: "no such file", args: []string{"--config", "/nonexistent/hubd.yaml"}, want: "--config: open /nonexistent/hubd.yaml: no such file"},
		{name: "no such file, by variable", env: []string{"HUBD_CONFIG=/nonexistent/hubd.yaml"}, want: "HUBD_CONFIG: open /nonexistent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := invocation{args: append([]string{"config"}, test.args...), env: test.env}.run(t.Context())
			if test.want == "" {
				got.want(t, 0, "feeds:\n", "")
			} else {
				got.want(t, 2, "", test.want)
				if strings.Contains(got.stderr, "problems:") {
					t.Errorf("more than one problem:\n%s", got.stderr)
				}
			}
		})
	}
}

func TestConfigFileProblems(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string // in order, each after "FILE:"
	}{
		{"empty", "", nil},
		{"comments", "# nothing\n", nil},
		{"no feeds", "feeds: []\n", nil},
		{"anchors", "feeds:\n  - name: a\n    match: [a]\n    queue: &q {messages: 5}\n  - name: b\n    match: [b]\n    queue: *q\n", nil},
		{"not YAML", "feeds:\n\t- name: a\n", []string{" not valid YAML: line 2: found character that cannot start any token"}},
		{"a list", "- a\n", []string{"1: the file must be a mapping of feeds"}},
		{"unknown key", "feeds: []\nhistroy: 3\n", []string{`2: unknown key "histroy"; known: feeds`}},
		{"feeds is no list", "feeds:\n  name: a\n", []string{"2: feeds must be a list"}},
		{"feed is no mapping", "feeds:\n  - chat\n", []string{"2: a feed must be a mapping of name, match, policy, allow_policies, queue, history, ttl"}},
		{"key twice", "feeds:\n  - name: a\n    match: [a]\n    name: b\n", []string{`4: key "name" appears twice`}},
		{"values", `feeds:
  - name: [a]
    match: a
    policy: drop-last
    allow_policies: [disconnect, drop-none]
    queue: {messages: many, bytes: 1MB, age: 3s}
    history: {messages: -1, bytes: 0, age: x}
    ttl: 3
`, []string{
			"2: name must be a single value",
			"3: match must be a list",
			`4: policy "drop-last": did you mean drop-oldest?`,
			`5: policy "drop-none": did you mean drop-newest?`,
			`6: messages "many": write a whole number, 1 or more`,
			`6: bytes "1MB": write a size in bytes`,
			`6: unknown key "age"; known: messages, bytes`,
			`7: messages "-1": write a whole number`,
			`7: bytes "0": write a size of 1 or more`,
			`7: age "x": write a duration`,
			`8: ttl "3": write a duration`,
		}},
		{"what the hub finds", `feeds:
  - name: chat
    match: ["chat.["]
  - name: chat
    match: [x]
  - name: UPPER
    match: []
    queue: {bytes: 1KiB}
`, []string{
			`2: feed 1 ("chat"): match "chat.[" is no glob`,
			`4: feed 2 ("chat"): another feed has that name`,
			`6: feed 3 ("UPPER"): the name is a metric label`,
			`6: feed 3 ("UPPER"): it matches no room`,
			`6: feed 3 ("UPPER"): queue bytes is 1024, less than one message may have`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := file(t, test.text)
			got := hubd(t, "config", "--config", name)
			if len(test.want) == 0 {
				got.want(t, 0, "feeds:\n", "")
				return
			}
			got.want(t, 2, "", name+":")
			rest := got.stderr
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, name+":"+want)
				if !found {
					t.Errorf("no %q, or not in its place, in\n%s", want, got.stderr)
					continue
				}
				rest = after
			}
			if n := strings.Count(got.stderr, name+":"); n != len(test.want) {
				t.Errorf("%d problems, want %d:\n%s", n, len(test.want), got.stderr)
			}
		})
	}
}

const exampleFeeds = `feeds:
  - name: "chat"
    match: ["chat.*", "talk.*"]
    policy: disconnect
    allow_policies: [disconnect, drop-oldest]
    queue: {messages: 100, bytes: 512KiB}
    history: {messages: 0, bytes: 256KiB, age: 5m}
    ttl: 1m30s
`

func TestConfigPrintsWhatIsEffective(t *testing.T) {
	got := invocation{
		args: []string{"config", "--config", file(t, exampleFeeds), "--drain-window", "90s", "--allowed-origins", "https://a.example:443,http://B.example"},
		env:  []string{"HUBD_MAX_MESSAGE_BYTES=131072"},
	}.run(t.Context())
	got.want(t, 0, exampleFeeds, "")
	for _, want := range []string{
		"# HUBD_ADDR=127.0.0.1:8080 # default",
		"# HUBD_DRAIN_WINDOW=1m30s # flag",
		"# HUBD_MAX_MESSAGE_BYTES=128KiB # environment",
		`- name: "default" match: ["*"] policy: drop-newest`,
	} {
		if text := strings.Join(strings.Fields(got.stdout), " "); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	if !strings.Contains(got.stdout, "HUBD_MAX_CONNECTIONS=") || strings.Contains(got.stdout, "HUBD_MAX_CONNECTIONS=0") {
		t.Errorf("the effective limit of connections is not shown:\n%s", got.stdout)
	}

	// Fed back, it is the same.
	again := invocation{
		args: []string{"config", "--config", file(t, got.stdout), "--drain-window", "90s", "--allowed-origins", "https://a.example:443,http://B.example"},
		env:  []string{"HUBD_MAX_MESSAGE_BYTES=131072"},
	}.run(t.Context())
	if again.stdout != got.stdout {
		t.Errorf("fed back it is\n%s\nand was\n%s", again.stdout, got.stdout)
	}
}

// TestConfigTellsTheWorstCase: that of the feed with the largest queues, in all
// encodings in use, within the budget or not.
func TestConfigTellsTheWorstCase(t *testing.T) {
	feeds := file(t, `feeds:
  - {name: small, match: [s], queue: {messages: 1, bytes: 64KiB}}
  - {name: large, match: [l], queue: {messages: 1024, bytes: 8MiB}}
  - {name: default, match: ["*"], queue: {messages: 1, bytes: 1MiB}}
`)
	// A queue of the large feed: 4 x 8 MiB, or 6 x with compressed forms, and
	// 1024 x (256 + 64) B.
	for _, test := range []struct{ args, want string }{
		{"--memory-budget 0", "# Memory at worst: 100 connections, each in 2 rooms, have 200 queues; all full, and no two of the same messages, they would hold 6.31 GiB, which no memory budget bounds.\n"},
		{"--memory-budget 1GiB", "they would hold 6.31 GiB. The memory budget keeps that to 1 GiB.\n"},
		{"--memory-budget 8GiB", "they would hold 6.31 GiB, which is within the memory budget of 8 GiB.\n"},
		{"--memory-budget 8GiB --compression", "they would hold 9.44 GiB. The memory budget keeps that to 8 GiB.\n"},
	} {
		args := append([]string{"config", "--config", feeds, "--max-connections=100", "--max-rooms-per-connection=2"}, strings.Fields(test.args)...)
		hubd(t, args...).want(t, 0, test.want, "")
	}
}
