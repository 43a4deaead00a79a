package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"hubd/internal/hub"
)

// configCommand checks what serve would check, with the same flags.
type configCommand struct {
	settings
}

func (c *configCommand) Help() string {
	return "Takes the flags, variables and file of \"hubd serve\". What it prints can be used as the file of --config; the settings stand in comments, in the form of an environment file. It opens no socket."
}

func (c *configCommand) run(_ context.Context, p *program) error {
	var b strings.Builder
	b.WriteString("# The effective configuration. Feeds: use this text as the file of --config.\n")
	b.WriteString("# Settings: as variables, or as flags (HUBD_MAX_ROOMS_PER_CONNECTION is --max-rooms-per-connection).\n")
	for _, flag := range p.flags {
		value := settingText(flag)
		switch flag.Name {
		case "max-connections":
			value = strconv.Itoa(c.effective.server.MaxConnections)
		case "memory-budget":
			value = formatSize(int(c.effective.hub.MemoryBudget))
		}
		if value == "" || flag.Name == "config" {
			continue
		}
		from := "default"
		if s, ok := p.sources[flag.Name]; ok {
			from = string(s)
		}
		fmt.Fprintf(&b, "#   %-50s # %s\n", variable(flag.Name)+"="+value, from)
	}
	fmt.Fprintf(&b, "# Memory at worst: %v\n", c.effective.worstCase())
	b.WriteString("feeds:\n")
	for _, feed := range c.effective.feeds {
		writeFeed(&b, feed)
	}
	_, err := p.stdout.Write([]byte(b.String()))
	return err
}

// settingText is a flag's value in the form in which it can be given.
func settingText(flag *kong.Flag) string {
	switch value := flag.Target.Interface().(type) {
	case []string:
		return strings.Join(value, ",")
	default:
		return fmt.Sprint(value)
	}
}

func writeFeed(b *strings.Builder, feed hub.Feed) {
	fmt.Fprintf(b, "  - name: %s\n", strconv.Quote(feed.Name))
	var globs []string
	for _, glob := range feed.Match {
		globs = append(globs, strconv.Quote(glob))
	}
	fmt.Fprintf(b, "    match: [%s]\n", strings.Join(globs, ", "))
	fmt.Fprintf(b, "    policy: %v\n", feed.Policy)
	var allowed []string
	for _, policy := range feed.Allow {
		allowed = append(allowed, policy.String())
	}
	fmt.Fprintf(b, "    allow_policies: [%s]\n", strings.Join(allowed, ", "))
	fmt.Fprintf(b, "    queue: {messages: %d, bytes: %s}\n", feed.Queue.Messages, formatSize(feed.Queue.Bytes))
	fmt.Fprintf(b, "    history: {messages: %d, bytes: %s, age: %s}\n", feed.History.Messages, formatSize(feed.History.Bytes), formatDuration(feed.History.Age))
	fmt.Fprintf(b, "    ttl: %s\n", formatDuration(feed.TTL))
}
