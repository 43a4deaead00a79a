package main
import ("context";"errors")
func freshness(ctx context.Context, l *lab, o options) (*figure, error) { return nil, errors.New("todo") }
