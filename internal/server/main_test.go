package server_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind, the server's or its own.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
