// Workers that take jobs from a queue until Ctrl-C, beside examples/worker_pool.rs: jobs that were begun are finished, the
// others are counted. With an argument it works until it is interrupted, without one it interrupts itself.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	workers  = 8
	patience = 10 * time.Second
)

// work takes jobs until the context is done.
func work(ctx context.Context, jobs <-chan uint64, finished *atomic.Uint64) {
	for {
		select {
		case <-ctx.Done():
			return
		default:
		}
		select {
		case n := <-jobs:
			time.Sleep(time.Duration(500+n%7*100) * time.Microsecond) // some work, which is not interrupted
			finished.Add(1)
		case <-ctx.Done():
			return
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	jobs := make(chan uint64, workers*2)
	var group sync.WaitGroup
	var finished atomic.Uint64
	for range workers {
		group.Go(func() { work(ctx, jobs, &finished) })
	}
	if len(os.Args) == 1 {
		go func() {
			for finished.Load() < 100 {
				time.Sleep(time.Millisecond)
			}
			syscall.Kill(syscall.Getpid(), syscall.SIGINT)
		}()
	}
	fmt.Println("working; ^C ends, a second ^C ends at once")
	var submitted uint64
submit:
	for {
		select {
		case jobs <- submitted: // waits while the queue is full
			submitted++
		case <-ctx.Done():
			break submit
		}
	}
	stop() // a second ^C ends at once
	fmt.Printf("%v: finishing what was begun\n", context.Cause(ctx))
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		fmt.Printf("%d jobs finished, %d left in the queue\n", finished.Load(), len(jobs))
		if finished.Load()+uint64(len(jobs)) != submitted {
			log.Fatal("jobs were lost")
		}
	case <-time.After(patience):
		fmt.Printf("some workers did not end within %v\n", patience)
	}
}
