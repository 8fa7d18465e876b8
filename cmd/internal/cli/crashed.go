// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/guard"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
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

// Run frees the lock when the last requests of the dead have had their time, and gives up
// when the lock has run out by itself.
func (f *crashedCmd) Run() error {
	// A service manager sends these to all that is left of a unit. The lock is about to be free,
	// and the next holder wants it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	// "exe" tells nobody anything; if it fails, no harm is done
	_ = os.WriteFile("/proc/self/comm", []byte("tenure"), 0o600)
	ended, err := guard.ParseInstant(f.Ended)
	expiry, err2 := guard.ParseInstant(f.Until)
	at, err3 := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err := cmp.Or(err, err2, err3); err != nil {
		return usage("%w", err)
	}
	options, err := f.Options(nil)
	if err == nil {
		options, err = flags.WithDefaults(options)
	}
	if err := cmp.Or(err, mustExist(at)); err != nil {
		return err
	}
	from := ended.Add(options.Grace)
	until := max(ended, expiry).Add(options.LeaseDuration)
	ctx, stop := context.WithTimeout(context.Background(), until.Sub(guard.Now()))
	defer stop()
	store, err := at.Connect(ctx) // nothing is asked of it yet: it may be out of reach for a while
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
	o := &admin.CrashOptions{After: from.Sub(now), Within: until.Sub(now)}
	if o.After <= 0 {
		o.After = -1 // not the default: that time has passed
	}
	if o.Within < o.After || o.Within <= 0 {
		return nil // it runs out, or has
	}
	if err = admin.ReleaseCrashed(ctx, client, f.Lock, f.ID, o); err == nil || errors.Is(err, tenure.ErrNotHeld) {
		return nil
	}
	return storeFailed(err)
}
