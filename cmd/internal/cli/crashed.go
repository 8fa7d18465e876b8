// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/driver"
)

// crashedWord is the command by which the guardian of run and lead frees the lock of
// its caller, which was killed. It is nobody else's: what it believes has to be proved.
const crashedWord = "crashed"

// crashedCmd is that command. The store is that of the environment.
type crashedCmd struct {
	Lock  string `required:""`
	ID    string `name:"id" required:""`
	Ended string `arg:""`
	Until string `arg:""`
	timingFlags
}

// lastAct returns what the guardian of a command executes in the end if this process was
// killed: nothing where nobody else has the store. The lock and the lease are in it, which
// the store shows; the URL of the store, which may have a password in it, stays in the
// environment.
func (t *command) lastAct(lease *tenure.Lease) []string {
	if !t.proves || t.location.Private() {
		return nil
	}
	timing := lease.Timing()
	return []string{
		os.Args[0], crashedWord, "--lock=" + lease.Name(), "--id=" + lease.ID(),
		"--lease=" + timing.LeaseDuration.String(), "--heartbeat=" + timing.HeartbeatPeriod.String(),
		"--refresh=" + timing.RefreshPeriod.String(), "--grace=" + timing.Grace.String(),
	}
}

// openPause is between two tries to reach the store.
const openPause = 100 * time.Millisecond

// Run frees the lock when the last requests of the dead have had their time, and gives up
// when the lock has run out by itself.
func (f *crashedCmd) Run() error {
	// "exe" tells nobody anything; if it fails, no harm is done
	_ = os.WriteFile("/proc/self/comm", []byte("tenure"), 0o600)
	ended, err := guard.ParseInstant(f.Ended)
	if err != nil {
		return usage("%w", err)
	}
	expiry, err := guard.ParseInstant(f.Until)
	if err != nil {
		return usage("%w", err)
	}
	options, err := f.Options(nil)
	if err != nil {
		return err
	}
	if options, err = flags.WithDefaults(options); err != nil {
		return err
	}
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil {
		return usage("%w", err)
	}
	if err := mustExist(at); err != nil {
		return err
	}
	from := ended.Add(options.Grace)
	until := max(ended, expiry).Add(options.LeaseDuration)
	ctx, stop := context.WithTimeout(context.Background(), until.Sub(guard.Now()))
	defer stop()
	go hurry(ctx, stop, from.Add(2*options.RequestTimeout))
	store, err := reach(ctx, at)
	if err != nil {
		return storeFailed(err)
	}
	defer func() { _ = store.Close() }() // what was written is confirmed, or told of
	client, err := tenure.New(store, &options)
	if err != nil {
		return usage("%w", err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // it holds nothing
	now := guard.Now()
	o := &tenure.CrashOptions{After: from.Sub(now), Within: until.Sub(now)}
	if o.After <= 0 {
		o.After = -1 // not the default: that time has passed
	}
	if o.Within < o.After || o.Within <= 0 {
		return nil // it runs out, or has
	}
	if err = client.ReleaseCrashed(ctx, f.Lock, f.ID, o); err == nil || errors.Is(err, tenure.ErrNotHeld) {
		return nil
	}
	return storeFailed(err)
}

// hurry takes the signals that ask for the end, as a service manager sends them to all
// that is left of a unit. The lock is about to be free, and the next holder wants it: the
// signals end what takes longer than that.
func hurry(ctx context.Context, stop func(), at guard.Instant) {
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		signal.Notify(signals, sig)
	}
	select {
	case <-signals:
	case <-ctx.Done():
		return
	}
	if err := sleep(ctx, at.Sub(guard.Now())); err == nil {
		stop()
	}
}

// reach opens the store, which may be out of reach for a while.
func reach(ctx context.Context, at storeurl.Location) (driver.Store, error) {
	for {
		store, err := at.Open()
		if err == nil {
			return store, nil
		}
		if permanent(err) {
			return nil, err
		}
		if sleep(ctx, openPause) != nil {
			return nil, err
		}
	}
}
