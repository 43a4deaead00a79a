package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const envPrefix = "HUBD_"

// source is where the value of a setting came from.
type source string

const (
	sourceFlag source = "flag"
	sourceEnv  source = "environment"
)

// environment is the part of the process's environment that is ours.
type environment map[string]string

func newEnvironment(env []string) environment {
	ours := make(environment)
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, envPrefix) {
			ours[name] = value
		}
	}
	return ours
}

// variable is the name of the variable that sets a flag.
func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// resolver gives flags that are not on the command line their variable's value.
// An empty variable counts as unset, as compose files and unit files produce it.
func (e environment) resolver() kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if value := e[variable(flag.Name)]; value != "" && flag.Name != "help" {
			return value, nil
		}
		return nil, nil
	})
}

// fromCluster matches what Kubernetes sets in every container of a namespace
// that has a service named hubd. They are nobody's mistake.
var fromCluster = regexp.MustCompile(`^HUBD_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// unknown returns a problem for each variable that sets no flag of any command.
func (e environment) unknown(grammar *kong.Application) problems {
	var known []string
	for _, command := range grammar.Children {
		for _, flag := range command.Flags {
			known = append(known, variable(flag.Name))
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	var found problems
	for name, value := range e {
		if slices.Contains(known, name) || fromCluster.MatchString(name) ||
			name == "HUBD_PORT" && strings.Contains(value, "://") {
			continue
		}
		hint := "unset it; --help names the variables"
		if c := closest(name, known); c != "" {
			hint = "did you mean " + c + "?"
		}
		found.add("%s: unknown variable; %s", name, hint)
	}
	slices.Sort(found)
	return found
}
