package main
import ("context";"errors")
func idle(ctx context.Context, l *lab, o options) (*figure, error) { return nil, errors.New("todo") }
