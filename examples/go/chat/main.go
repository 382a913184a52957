// A chat server, two goroutines per guest, beside examples/chat.rs: `chat 127.0.0.1:7000` serves until Ctrl-C, without an
// argument three guests of its own talk.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

// room has the guests, and how to reach each.
type room struct {
	mu     sync.Mutex
	guests map[string]chan string
}

// say passes a line on to all guests. One that does not read, so that its queue is full, misses it.
func (r *room) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + "\n"
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, lines := range r.guests {
		select {
		case lines <- line:
		default:
		}
	}
}

func (r *room) enter(address string) chan string {
	lines := make(chan string, 64)
	r.mu.Lock()
	r.guests[address] = lines
	r.mu.Unlock()
	r.say("* %s is here", address)
	return lines
}

func (r *room) leave(address string) {
	r.mu.Lock()
	close(r.guests[address]) // which ends the writer, when it has written all
	delete(r.guests, address)
	r.mu.Unlock()
	r.say("* %s has left", address)
}

func (r *room) guest(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	address := conn.RemoteAddr().String()
	lines := r.enter(address)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for line := range lines {
			if _, err := conn.Write([]byte(line)); err != nil {
				break
			}
		}
		for range lines {
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.(*net.TCPConn).CloseRead() })
	defer stop()
	reader := bufio.NewScanner(conn)
	for reader.Scan() {
		r.say("%s: %s", address, reader.Text())
	}
	r.leave(address)
	<-written
}

func serve(ctx context.Context, listener net.Listener) {
	r := &room{guests: map[string]chan string{}}
	var guests sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		if err != nil {
			continue
		}
		guests.Go(func() { r.guest(ctx, conn) })
	}
	guests.Wait()
}

// find reads lines until one is as wanted.
func find(reader *bufio.Scanner, wanted func(string) bool) string {
	for reader.Scan() {
		if wanted(reader.Text()) {
			return reader.Text()
		}
	}
	log.Fatal("the line did not come")
	return ""
}

// tryIt has three guests: when all are there, another one greets, and each hears it.
func tryIt(here string) error {
	var guests []*bufio.Scanner
	for range 3 {
		conn, err := net.Dial("tcp", here)
		if err != nil {
			return err
		}
		defer conn.Close()
		arrived := fmt.Sprintf("* %v is here", conn.LocalAddr())
		guest := bufio.NewScanner(conn)
		find(guest, func(line string) bool { return line == arrived })
		guests = append(guests, guest)
	}
	fourth, err := net.Dial("tcp", here)
	if err != nil {
		return err
	}
	defer fourth.Close()
	fmt.Fprintln(fourth, "hello, all")
	for _, guest := range guests {
		fmt.Println(find(guest, func(line string) bool { return strings.HasSuffix(line, ": hello, all") }))
	}
	return nil
}

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("chat at %v; ^C ends\n", listener.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	served := make(chan struct{})
	go func() {
		serve(ctx, listener)
		close(served)
	}()
	if len(os.Args) == 1 {
		if err := tryIt(listener.Addr().String()); err != nil {
			log.Fatal(err)
		}
		syscall.Kill(syscall.Getpid(), syscall.SIGINT)
	}
	<-served
	fmt.Println("all guests have left")
}
