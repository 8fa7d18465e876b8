// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/cmd/internal/tokenfile"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/notify"
)

type doctorCmd struct {
	readerFlags
	timingFlags
	notifyFlags
	serverFlags
}

// statusBad is the exit status of an examination that found something bad.
const statusBad = 1

// Run examines the store and the machine, or a lock service.
func (f *doctorCmd) Run(c *console) error {
	switch {
	case f.Server != nil && (f.Store != nil || f.Given() || f.Notify != nil):
		return usage("--server excludes --store, --notify and the lease flags: the service has its own settings")
	case f.Server != nil:
		return f.examineServer(c)
	case f.TokenFile != nil:
		return usage("--token-file is for a lock service: name it with --server")
	case f.CAFile != nil:
		return usage("--ca-file is for a lock service: name it with --server")
	}
	options, err := f.Options(f.Store)
	if err == nil {
		options, err = flags.WithDefaults(options)
	}
	if err != nil {
		return err
	}
	plan, err := f.asked()
	if err != nil {
		return err
	}
	at, err := f.location(c)
	if err == nil {
		err = mustExist(at)
	}
	if err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	r := report{c: c}
	bad, err := doctor.Examine(ctx, doctor.Patient{
		Diagnose: at.Diagnose, Open: at.Open, Store: at.Shown, Options: options, Tell: r.tell,
	})
	bad = r.examineNotifier(ctx, plan, at) || bad
	return r.end(ctx, bad, err)
}

type report struct {
	c     *console
	count [3]int // ok, warn, bad
}

func (r *report) tell(finding driver.Finding) {
	switch finding.Level {
	case driver.LevelOK:
		r.count[0]++
		if r.c.quiet {
			return
		}
	case driver.LevelWarn:
		r.count[1]++
	case driver.LevelBad:
		r.count[2]++
	}
	if r.c.json {
		r.c.object(finding)
		return
	}
	r.c.put(printable.Text(finding.String()) + "\n")
}

// end writes the last line, and returns the exit status. Err is why the examination could
// not continue; it was reported before.
func (r *report) end(ctx context.Context, bad bool, err error) error {
	if !r.c.json && context.Cause(ctx) == nil && (!r.c.quiet || r.count[1]+r.count[2] > 0 || r.count[0] == 0) {
		r.c.put(fmt.Sprintf("%d bad, %s\n", r.count[2], counted(r.count[1], "warning")))
	}
	sig := signaled{}
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return sig
	case err != nil:
		return ended(statusStore)
	case bad:
		return ended(statusBad)
	}
	return nil
}

// examineNotifier reports the address that others notify, and whether that address answers here. It
// returns whether it does not do at all.
func (r *report) examineNotifier(ctx context.Context, p *notifyPlan, at storeurl.Location) (bad bool) {
	if p == nil {
		return false
	}
	const check = "notify"
	udp, err := p.listenAt(ctx, at)
	if err != nil {
		r.tell(driver.Bad(check, "%v", err).Advise("see --notify in tenure help tuning"))
		return true
	}
	defer func() { _ = udp.Close() }()
	if err := echo(ctx, udp); err != nil {
		r.tell(driver.Warn(check, "other processes notify %s, and a test datagram sent there did not arrive (%v)",
			udp.Address(), err).Advise("this may be in order if the address belongs to a machine in front of this one; " +
			"otherwise open the port, or advertise another address"))
		return false
	}
	r.tell(driver.OK(check, "other processes notify %s; a test datagram sent there arrived", udp.Address()))
	return false
}

func echo(ctx context.Context, udp *notify.UDP) error {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	arrived := make(chan error, 1)
	go func() {
		_, err := udp.Receive(ctx)
		arrived <- err
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := udp.Send(udp.Address(), []byte("tenure doctor")); err != nil {
			return err
		}
		select {
		case err := <-arrived:
			return err
		case <-tick.C:
		}
	}
}

type serverFlags struct {
	Server    *string
	TokenFile *string
	CAFile    *string `name:"ca-file"`
	Lock      string  `default:"doctor"`
}

func (f *serverFlags) service() (doctor.Service, error) {
	s := doctor.Service{URL: *f.Server, Lock: f.Lock}
	if err := checkTaken(tenure.Options{}, f.Lock); err != nil {
		return s, fmt.Errorf("--lock: %w", err)
	}
	if f.CAFile != nil {
		pem, err := os.ReadFile(*f.CAFile)
		if err != nil {
			return s, usage("--ca-file: %w", err)
		}
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !s.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return s, usage("--ca-file: %s contains no certificate in PEM format", *f.CAFile)
		}
	}
	var err error
	s.Token, err = f.token()
	return s, err
}

// token reads the token from the named file, or from the file that tenured has made for
// this user, if it exists.
func (f *serverFlags) token() (string, error) {
	if f.TokenFile == nil {
		path, err := tokenfile.Own()
		if err != nil {
			return "", nil //nolint:nilerr // there is no token, which the doctor reports
		}
		secret, err := tokenfile.Secret(path)
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		return secret, err
	}
	text, err := os.ReadFile(*f.TokenFile)
	if err != nil {
		return "", usage("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\n") {
		return "", usage("--token-file: %s must contain one token and nothing else", *f.TokenFile)
	}
	return token, nil
}

func (f *doctorCmd) examineServer(c *console) error {
	s, err := f.service()
	if err != nil {
		return err
	}
	ctx, stop := catchSignals().cancel(context.Background())
	defer stop()
	r := report{c: c}
	s.Tell = r.tell
	bad, err := doctor.ExamineService(ctx, s)
	if err != nil && !errors.Is(err, doctor.ErrNoService) && context.Cause(ctx) == nil {
		return usage("%w", err)
	}
	return r.end(ctx, bad, err)
}
