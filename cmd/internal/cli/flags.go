// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/notify"
)

type storeFlags struct {
	Store *string `placeholder:"URL"`
}

type timingFlags = flags.Timing

// leaseFlags are the flags of a holder.
type leaseFlags struct {
	timingFlags
	notifyFlags

	Owner   *string `empty:"name this holder, or leave the flag out"`
	Label   string
	Contain bool

	progress time.Duration // how long the command may show no progress, 0: no limit
}

// outputFlags say what people, or programs, get to read.
type outputFlags struct {
	JSON    bool `name:"json"`
	Quiet   bool `short:"q" xor:"loudness"`
	Verbose bool `short:"v" xor:"loudness"`
}

// readerFlags are the flags of a command that shows a store, or asks a holder.
type readerFlags struct {
	storeFlags
	JSON  bool `name:"json"`
	Quiet bool `short:"q"`
}

// checkFlags returns an error if a flag that was given breaks a rule of its tags: what its number
// "must", and what to write where it is "empty".
func checkFlags(all []*kong.Flag) error {
	for _, flag := range all {
		value := flag.Target
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue // it was not given
			}
			value = value.Elem()
		}
		switch must := flag.Tag.Get("must"); {
		case must == "be a period":
			if err := checkPeriod("--"+flag.Name, time.Duration(value.Int())); err != nil {
				return err
			}
		case must == "be positive" && value.Int() <= 0, must == "not be negative" && value.Int() < 0:
			return usage("--%s %v must %s", flag.Name, value.Interface(), must)
		case flag.Tag.Has("empty") && value.String() == "":
			return usage("--%s is empty: %s", flag.Name, flag.Tag.Get("empty"))
		}
	}
	return nil
}

// valueOf returns what a pointer flag says, the zero value if it was not given.
func valueOf[T any](given *T) (value T) {
	if given != nil {
		value = *given
	}
	return value
}

// options returns the client's options, for the store that a flag or the environment names.
func (f *leaseFlags) options(on storeFlags) (tenure.Options, error) {
	o, err := f.Options(on.Store)
	if err != nil {
		return o, err
	}
	o.Owner, o.Label, o.ProgressTimeout = valueOf(f.Owner), f.Label, f.progress
	return o, nil
}

// check returns an error if a client would refuse the options, or one of the
// names. It asks a client on an empty store in memory, so that a mistake is
// found before a real store is touched, by the rules that hold there.
func check(o tenure.Options, names ...string) error {
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		for _, name := range names {
			if _, err := client.Status(ctx, name); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
		return nil
	})
}

// checkTaken is check for the name of a lock to take, for which the rules are stricter
// than for a name that is only read.
func checkTaken(o tenure.Options, name string) error {
	return refused(o, func(ctx context.Context, client *tenure.Client) error {
		_, err := client.TryAcquire(ctx, name, nil)
		return err
	})
}

// refused returns an error if a client would refuse to do what ask asks of it. It
// is given up before it begins, on an empty store.
func refused(o tenure.Options, ask func(context.Context, *tenure.Client) error) error {
	client, err := tenure.New(memstore.New(), &o)
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = client.Close(context.Background()) }() // it holds nothing
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = ask(ctx, client)
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	if named := (*tenure.Error)(nil); errors.As(err, &named) {
		err = named.Err // the name itself may be of any length
	}
	return usage("%w", err)
}

// location returns where the locks are, and reports a default that the user did not
// choose, also with --quiet: a command on a wrong store would exclude no one, but
// otherwise work.
func (f *storeFlags) location(c *console) (storeurl.Location, error) {
	l, named, err := flags.Locate(f.Store, c.attended)
	if err == nil && !named {
		c.warn("no store is named (--store, TENURE_STORE): using %s", l.Shown())
	}
	return l, err
}

// storeClient is a store, and a client on it that holds no lock, for a command that reads or
// asks. A signal ends its context.
type storeClient struct {
	ctx    context.Context //nolint:containedctx // it is one command, which a signal ends
	at     storeurl.Location
	store  driver.Store
	client *tenure.Client
	close  func()
}

// client opens the store, which must be there. Options, and the plan for notifications, may be nil;
// with a plan there must be options.
func (f *storeFlags) client(c *console, options *tenure.Options, plan *notifyPlan) (*storeClient, error) {
	at, err := f.location(c)
	if err == nil {
		err = mustExist(at)
	}
	if err != nil {
		return nil, err
	}
	return clientAt(c, at, options, plan)
}

// reader is client for a command that only reads. It is nil if this user's file does not
// exist yet, so that there is nothing to show; a named file must exist. A command that
// watches waits for the file.
func (f *storeFlags) reader(c *console, watches bool) (*storeClient, error) {
	at, err := f.location(c)
	if err != nil {
		return nil, err
	}
	if err := mustExist(at); err != nil && !at.Preset() {
		return nil, err
	} else if err != nil && !watches {
		return nil, nil //nolint:nilnil // there is nothing to be read
	}
	return clientAt(c, at, nil, nil)
}

func clientAt(c *console, at storeurl.Location, options *tenure.Options, plan *notifyPlan) (*storeClient, error) {
	store, client, shut, err := openStore(c, at, options, plan)
	if err != nil {
		return nil, err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	return &storeClient{ctx, at, store, client, func() {
		_ = client.Close(context.WithoutCancel(ctx)) // it holds nothing
		shut()
		stop()
	}}, nil
}

// openStore opens a store, with a client on it, which is closed before the store is. The
// console and the options are needed only for notifications.
func openStore(c *console, at storeurl.Location, options *tenure.Options, plan *notifyPlan) (
	store driver.Store, client *tenure.Client, shut func(), err error,
) {
	if store, err = at.Open(); err != nil {
		return nil, nil, nil, storeFailed(err)
	}
	closeNotifier := plan.open(c, at, options)
	shut = func() {
		closeNotifier()
		_ = store.Close() // every write was confirmed, or its failure reported
	}
	if client, err = tenure.New(store, options); err != nil {
		shut()
		return nil, nil, nil, usage("%w", err)
	}
	return store, client, shut, nil
}

// notifyFlags say where this process takes hints of others.
type notifyFlags struct {
	Notify *string `placeholder:"[ADVERTISED=]HOST:PORT"`
}

// notifyPlan is what the flag says.
type notifyPlan struct {
	listen     string         // without a host: at all addresses
	port       string         // of listen
	advertised netip.AddrPort // not valid: the address on the route to the store; port 0: that which is listened at
}

// notifyVariable has the value of --notify, if that is not given.
const notifyVariable = "TENURE_NOTIFY"

// asked returns what the flag or the environment asks for, nil for no notifications.
func (f notifyFlags) asked() (*notifyPlan, error) {
	text, name := os.Getenv(notifyVariable), notifyVariable
	if f.Notify != nil {
		text, name = *f.Notify, "--notify"
	}
	if text == "" && f.Notify == nil {
		return nil, nil //nolint:nilnil // without notifications
	}
	wrong := func(why string) (*notifyPlan, error) {
		return nil, usage("%s %.100q: %s: write IP:PORT, such as 192.0.2.7:4711; :PORT or :0 for the address "+
			"on the route to the store; or ADVERTISED_IP=:PORT", name, text, why)
	}
	shown, listen, given := strings.Cut(text, "=")
	if !given {
		shown, listen = "", text
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return wrong("the port is missing")
	}
	p := &notifyPlan{port: port}
	number, err := netip.ParseAddrPort("0.0.0.0:" + port)
	switch {
	case err != nil:
		return wrong("the port is not a number from 1024 to 65535, or 0")
	case number.Port() != 0 && number.Port() < notify.MinPort:
		return wrong(fmt.Sprintf("port %s is below %d", port, notify.MinPort))
	}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return wrong("the host is not an IP address")
		}
		if p.listen = listen; !ip.IsUnspecified() {
			p.advertised = netip.AddrPortFrom(ip, 0)
		}
	}
	if !given {
		return p, nil
	}
	if ip, err := netip.ParseAddr(shown); err == nil {
		p.advertised = netip.AddrPortFrom(ip, 0)
	} else if p.advertised, err = netip.ParseAddrPort(shown); err != nil {
		return wrong("the advertised address is not IP or IP:PORT")
	}
	if ip := p.advertised.Addr(); ip.IsUnspecified() || ip.IsMulticast() {
		return wrong("other machines cannot reach " + ip.String())
	}
	return p, nil
}

// listenAt listens. The store was opened before, so that it is known where it is.
func (p *notifyPlan) listenAt(ctx context.Context, at storeurl.Location) (*notify.UDP, error) {
	shown := p.advertised
	if !shown.IsValid() {
		host := at.Host()
		if host == "" {
			return nil, errors.New("the host of the store is not known: name the address to advertise")
		}
		ip, err := notify.RouteTo(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("%w: name the address to advertise", err)
		}
		shown = netip.AddrPortFrom(ip, 0)
	}
	listen := p.listen
	if listen == "" {
		all := netip.IPv4Unspecified()
		if shown.Addr().Is6() {
			all = netip.IPv6Unspecified()
		}
		if listen = net.JoinHostPort(all.String(), p.port); shown.Addr().IsLoopback() {
			listen = net.JoinHostPort(shown.Addr().String(), p.port) // no other machine reaches it there
		}
	}
	return notify.Listen(listen, &notify.Options{Advertise: shown.String()})
}

// open gives the options a notifier, if one is asked for. Close is called after the client is
// closed. If notifications cannot be set up, open reports it, and the command continues
// without them.
func (p *notifyPlan) open(c *console, at storeurl.Location, o *tenure.Options) (closeNotifier func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), routePatience)
	defer cancel()
	udp, err := p.listenAt(ctx, at)
	if err != nil {
		c.warn("no notifications (changes are found by polling): %s", err)
		return func() {}
	}
	o.Notify = udp
	return func() { _ = udp.Close() } // nothing was kept in it
}

// routePatience is how long the name of the store's host is looked up.
const routePatience = 2 * time.Second
