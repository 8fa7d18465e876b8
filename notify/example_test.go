// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/notify"
)

// A process listens at the address under which the others of its fleet reach it.
func Example() {
	ctx := context.Background()
	store := memstore.New() // or dynamostore.New(...)

	udp, err := notify.Listen("127.0.0.1:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer udp.Close() // after the client
	client, err := tenure.New(store, &tenure.Options{Notify: udp})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Run(ctx, "reports", nil, func(context.Context, *tenure.Lease) error {
		fmt.Println("at work; those that wait are notified when it is done")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: at work; those that wait are notified when it is done
}

// A machine whose address others see differently, or that listens at all of its
// addresses, says what to advertise: here the address on the route to the store.
func ExampleRouteTo() {
	ctx := context.Background()
	ip, err := notify.RouteTo(ctx, "127.0.0.1") // the host of the store
	if err != nil {
		log.Fatal(err)
	}
	udp, err := notify.Listen("0.0.0.0:0", &notify.Options{Advertise: ip.String() + ":0"})
	if err != nil {
		log.Fatal(err)
	}
	defer udp.Close()
	fmt.Println("others reach this process at", ip)
	// Output: others reach this process at 127.0.0.1
}

// subjects carries messages by the names of subjects, as a broker such as NATS or Redis
// does. This one is for processes that are goroutines.
type subjects map[string]chan []byte

// subject is one process at the broker.
type subject struct {
	broker subjects
	name   string
}

func (s subject) Address() string { return s.name }

func (s subject) Send(address string, message []byte) error {
	to := s.broker[address]
	if to == nil {
		return errors.New("no such subject")
	}
	select {
	case to <- append([]byte(nil), message...): // the message is not kept
	default: // a slow reader loses it, and blocks no other
	}
	return nil
}

func (s subject) Receive(ctx context.Context) ([]byte, error) {
	select {
	case message := <-s.broker[s.name]:
		return message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Whatever has these three methods carries the messages.
func Example_transport() {
	ctx := context.Background()
	store := memstore.New()
	broker := subjects{"tenure.a": make(chan []byte, 100), "tenure.b": make(chan []byte, 100)}

	open := func(name string) *tenure.Client {
		client, err := tenure.New(store, &tenure.Options{
			Owner:  name,
			Notify: subject{broker, name},
		})
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	a, b := open("tenure.a"), open("tenure.b")
	defer a.Close(ctx)
	defer b.Close(ctx)

	lease, err := a.Acquire(ctx, "reports", nil)
	if err != nil {
		log.Fatal(err)
	}
	got := make(chan *tenure.Lease)
	go func() {
		lease, err := b.Acquire(ctx, "reports", nil)
		if err != nil {
			log.Fatal(err)
		}
		got <- lease
	}()
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	lease = <-got
	fmt.Println("now", lease.Owner(), "has it")
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: now tenure.b has it
}
