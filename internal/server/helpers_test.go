package server_test

import (
	"errors"

	"github.com/coder/websocket"
)

func asCloseError(err error, ce *websocket.CloseError) bool { return errors.As(err, ce) }
