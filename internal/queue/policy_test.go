package queue

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{strings.Join(PolicyNames(), " "), "drop-newest drop-oldest keep-latest disconnect reject-publish"},
		{strings.Join(ReasonNames(), " "), "overflow conflated expired budget closed"},
		{strings.Join(LimitNames(), " "), "messages bytes budget"},
	} {
		if tt.got != tt.want {
			t.Errorf("names are %q, want %q", tt.got, tt.want)
		}
	}
	for i, p := range Policies() {
		if int(p) != i || p.String() != PolicyNames()[i] {
			t.Errorf("policy %d is %d, %v", i, p, p)
		}
	}
	for i, r := range Reasons() {
		if int(r) != i || r.String() != ReasonNames()[i] {
			t.Errorf("reason %d is %d, %v", i, r, r)
		}
	}
	for l := LimitMessages; l < NumLimits; l++ {
		if l.String() != LimitNames()[l-1] {
			t.Errorf("limit %d is %v", l, l)
		}
	}
	if Policy(9).String() != "Policy(9)" || Reason(9).String() != "Reason(9)" || LimitNone.String() != "none" {
		t.Error("numbers outside the sets should show as such")
	}
}

func TestParsePolicy(t *testing.T) {
	for _, p := range Policies() {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("ParsePolicy(%q) is %v, %v", p, got, err)
		}
	}
	for _, name := range []string{"", "Drop-Newest", "drop_newest", " disconnect", "Policy(1)"} {
		_, err := ParsePolicy(name)
		if err == nil {
			t.Errorf("ParsePolicy(%q) passed", name)
			continue
		}
		for _, valid := range PolicyNames() {
			if !strings.Contains(err.Error(), valid) {
				t.Errorf("the error does not offer %s: %v", valid, err)
			}
		}
	}
}

func TestPolicyText(t *testing.T) {
	type config struct{ Policy Policy }
	text, err := json.Marshal(config{KeepLatest})
	if err != nil || string(text) != `{"Policy":"keep-latest"}` {
		t.Errorf("marshalled to %s, %v", text, err)
	}
	var c config
	if err := json.Unmarshal([]byte(`{"Policy":"disconnect"}`), &c); err != nil || c.Policy != Disconnect {
		t.Errorf("unmarshalled to %v, %v", c.Policy, err)
	}
	if err := json.Unmarshal([]byte(`{"Policy":"x"}`), &c); err == nil || c.Policy != Disconnect {
		t.Errorf("a wrong name gave %v, %v", c.Policy, err)
	}
	if _, err := json.Marshal(config{NumPolicies}); err == nil {
		t.Error("a number that is no policy was marshalled")
	}
}
