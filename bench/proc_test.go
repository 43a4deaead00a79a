package main

import (
	"os"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	stat := "4242 (a b) c) S 1 4242 4242 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 8 0 100 0 0"
	got, err := parseCPU([]byte(stat))
	if err != nil || got != 1750*time.Millisecond {
		t.Errorf("got %v (%v), want 1.75s", got, err)
	}
	for _, bad := range []string{"", "1 (x)", "1 (x) S 2"} {
		if _, err := parseCPU([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestOwnFiguresAreThere(t *testing.T) {
	if _, err := cpu(os.Getpid()); err != nil {
		t.Error(err)
	}
	if n, err := resident(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("resident %d (%v), want a megabyte at least", n, err)
	}
}

func TestCountSockets(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F90 0100007F:8001 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:8001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 3 1
   3: 0100007F:1F90 0100007F:8002 04 00000000:00000000 00:00000000 00000000     0        0 0 1
   4: 0100007F:1F91 0100007F:8001 01 00000000:00000000 00:00000000 00000000     0        0 4 1
`
	got, err := countSockets(table, 0x1F90, map[int]bool{0x8001: true, 0x8002: true})
	if err != nil || got != 2 {
		t.Errorf("got %d (%v), want 2: the server's end of both", got, err)
	}
}
