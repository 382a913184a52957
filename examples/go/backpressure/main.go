// A pipeline whose stages have different speeds, beside examples/backpressure.rs: channels with few places make the fast ones
// wait, so that memory stays bounded; and a stage that fails ends all the others.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"
)

const (
	room    = 4 // places between two stages
	workers = 3 // of the slow stage
)

// send waits while the channel is full, and ends with the context.
func send(ctx context.Context, to chan<- uint64, n uint64) error {
	select {
	case to <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive waits while the channel is empty; false: it is closed, or the context is done.
func receive(ctx context.Context, from <-chan uint64) (uint64, bool) {
	select {
	case n, ok := <-from:
		return n, ok
	case <-ctx.Done():
		return 0, false
	}
}

// run squares the numbers up to last by slow workers, and sums them up. bad is one that they cannot square.
func run(last, bad uint64) (sum uint64, most int64, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var group, squaring sync.WaitGroup
	stage := func(f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	numbers, squares := make(chan uint64, room), make(chan uint64, room)
	var underWay atomic.Int64

	stage(func() error {
		defer close(numbers)
		for n := uint64(1); n <= last; n++ {
			most = max(most, underWay.Add(1))
			if err := send(ctx, numbers, n); err != nil {
				return err
			}
		}
		return nil
	})
	squaring.Add(workers)
	for range workers {
		stage(func() error {
			defer squaring.Done()
			for {
				n, ok := receive(ctx, numbers)
				if !ok {
					return nil
				}
				if n == bad {
					return fmt.Errorf("%d cannot be squared", n)
				}
				time.Sleep(100 * time.Microsecond) // slow
				if err := send(ctx, squares, n*n); err != nil {
					return err
				}
			}
		})
	}
	go func() {
		squaring.Wait()
		close(squares)
	}()
	stage(func() error {
		for {
			n, ok := receive(ctx, squares)
			if !ok {
				return nil
			}
			underWay.Add(-1)
			sum += n
		}
	})
	group.Wait()
	return sum, most, context.Cause(ctx)
}

func main() {
	sum, most, err := run(500, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the sum of the squares of 1 to 500 is %d; at most %d numbers were under way\n", sum, most)
	if sum != 41_791_750 || most > 2*room+workers+2 {
		log.Fatal("the channels did not hold the first stage back")
	}
	_, _, err = run(1_000_000_000, 100)
	if err == nil {
		log.Fatal("one of them cannot be squared")
	}
	fmt.Println("a failure ends all stages:", err)
}
