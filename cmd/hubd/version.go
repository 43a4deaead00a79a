package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker for releases: -X main.version=v1.2.3 -X main.revision=abc.
var (
	version  string
	revision string
)

type versionCommand struct{}

func (c *versionCommand) run(_ context.Context, p *program) error {
	version, revision := build()
	_, err := fmt.Fprintf(p.stdout, "hubd %s (revision %s, %s %s/%s)\n",
		version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build returns the version and the revision, from the linker or else from
// what the compiler noted.
func build() (string, string) {
	v, r := version, revision
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		var modified bool
		var noted string
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				noted = s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
		if r == "" && noted != "" {
			r = noted
			if modified {
				r += "+changes"
			}
		}
	}
	if v == "" {
		v = "devel"
	}
	if r == "" {
		r = "unknown"
	}
	return v, r
}
