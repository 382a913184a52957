// A reverse proxy, beside examples/reverse_proxy.rs: requests go to the servers in turn; if one does not answer in time, the
// next is asked, unless the request may not be made twice.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	patience = 2 * time.Second
	largest  = 8 << 20 // bytes of a body
)

var idempotent = []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"}

// turns asks the servers in turn.
type turns struct {
	servers []*url.URL
	next    atomic.Uint64
}

func (t *turns) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(nil, request.Body, largest)); err != nil {
			return nil, err
		}
	}
	tries := 1
	if slices.Contains(idempotent, request.Method) {
		tries = len(t.servers)
	}
	first := t.next.Add(1) - 1
	for n := range tries {
		server := t.servers[(first+uint64(n))%uint64(len(t.servers))]
		response, err := ask(request, server, body)
		if err == nil {
			return response, nil
		}
		log.Printf("%v: %v", server, err)
	}
	return nil, fmt.Errorf("no server answers")
}

func ask(request *http.Request, server *url.URL, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), patience)
	defer cancel()
	request = request.Clone(ctx)
	request.URL.Scheme, request.URL.Host, request.Host = server.Scheme, server.Host, ""
	request.Body = io.NopCloser(bytes.NewReader(body))
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, largest))
	response.Body = io.NopCloser(bytes.NewReader(answer))
	return response, err
}

// startServer starts one that says its name, and whether a header came along that should not, after a while.
func startServer(name string, delay time.Duration) (*url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		fmt.Fprintf(w, "%s %v", name, r.Header.Get("X-Hop") != "")
	}))
	return url.Parse("http://" + listener.Addr().String())
}

// tryIt asks for a page and returns the status and the answer.
func tryIt(method, page string) (int, string) {
	request, err := http.NewRequest(method, page, nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Connection", "X-Hop")
	request.Header.Set("X-Hop", "1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	address, t := "127.0.0.1:0", &turns{}
	if len(os.Args) > 1 {
		address = os.Args[1]
		for _, argument := range os.Args[2:] {
			server, err := url.Parse(argument)
			if err != nil {
				log.Fatal(err)
			}
			t.servers = append(t.servers, server)
		}
	} else {
		for _, one := range []struct {
			name  string
			delay time.Duration
		}{{"fast", 0}, {"slow", 4 * patience}} {
			server, err := startServer(one.name, one.delay)
			if err != nil {
				log.Fatal(err)
			}
			t.servers = append(t.servers, server)
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	page := fmt.Sprintf("http://%v/page", listener.Addr())
	fmt.Printf("%s leads to %v; ^C ends\n", page, t.servers)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {},
		Transport: t,
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 30 * time.Second}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	if len(os.Args) == 1 {
		for range 2 {
			if status, answer := tryIt("GET", page); status != 200 || answer != "fast false" {
				log.Fatal(status, answer)
			}
		}
		one, _ := tryIt("POST", page)
		other, _ := tryIt("POST", page)
		if one != 200 || other != 502 {
			log.Fatal(one, other)
		}
		fmt.Println("the fast server answers, also in place of the slow one, but for what may not be asked twice")
		syscall.Kill(syscall.Getpid(), syscall.SIGINT)
	}
	<-ctx.Done()
	if err := server.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	<-served
}
