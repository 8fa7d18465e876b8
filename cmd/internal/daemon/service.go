// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/cmd/internal/tokenfile"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/dashboard"
)

// serviceFlags say what is served, where, and for which clients.
type serviceFlags struct {
	Store          *string
	Listen         []string `sep:"none"`
	TLSCert        string   `name:"tls-cert"`
	TLSKey         string   `name:"tls-key"`
	ClientCA       string   `name:"client-ca"`
	PlainHTTP      bool     `name:"plain-http"`
	Tokens         *string
	Public         []string `sep:"none"`
	PublicMetrics  bool
	AllowHost      []string `sep:"none"`
	TrustedProxies []string `sep:"none"`
	PageKey        string
	PageTitle      string
	NoPage         bool
	Reap           []string `sep:"none"`
	flags.Timing
	MaxWaits      int
	MaxCalls      int
	MaxHeartbeats int
}

// service is the result of the flags: all that exists before the first client is served.
type service struct {
	location   storeurl.Location
	store      driver.Store
	client     *tenure.Client
	principals *server.Principals
	server     *server.Server
	pages      *dashboard.Dashboard // nil: no pages
	addresses  []address
	proxies    []netip.Prefix
	files      *certificates // nil: not encrypted
	tls        *tls.Config   // from these files
}

// open makes everything ready. What is wrong with the command line, with the files that it
// names, and with the store is found in this order. It writes no record.
func (f *serviceFlags) open(c *console, log *slog.Logger) (*service, error) {
	options, err := f.options(log)
	if err != nil {
		return nil, err
	}
	s := &service{}
	if s.addresses, err = f.addresses(); err != nil {
		return nil, err
	}
	if s.proxies, err = f.proxies(); err != nil {
		return nil, err
	}
	hosts, err := f.encryption(s, log)
	if err != nil {
		return nil, err
	}
	if s.principals, err = f.known(s.addresses, log); err != nil {
		return nil, err
	}
	var named bool
	if s.location, named, err = flags.Locate(f.Store, c.attended); err != nil {
		return nil, err
	}
	if !named {
		log.Warn("no store is named (--store, TENURE_STORE): using this one", "store", s.location.Shown())
	}
	if s.location.Private() {
		log.Warn("the store is in memory: its locks and tokens are lost when this process ends, and replicas do not see them")
	}
	if s.store, err = s.location.Open(); err != nil {
		return nil, flags.Failed(flags.StatusStore, err)
	}
	if s.client, err = tenure.New(s.store, &options); err == nil {
		s.server, err = f.server(s, hosts, log)
	}
	if err == nil {
		err = f.dashboard(s)
	}
	if err != nil {
		s.close()
		return nil, flags.Usage("%w", err)
	}
	return s, nil
}

// options returns the options of the client.
func (f *serviceFlags) options(log *slog.Logger) (tenure.Options, error) {
	o, err := f.Options(f.Store)
	if err != nil {
		return o, err
	}
	switch {
	case f.MaxWaits < 0:
		return o, flags.Usage("--max-waits %d must be positive", f.MaxWaits)
	case f.MaxCalls < 0:
		return o, flags.Usage("--max-calls %d must be positive", f.MaxCalls)
	case f.MaxHeartbeats < 0:
		return o, flags.Usage("--max-heartbeats %d must be positive", f.MaxHeartbeats)
	}
	if _, err := flags.WithDefaults(o); err != nil {
		return o, err
	}
	for _, prefix := range f.Reap {
		if strings.HasPrefix(prefix, driver.OwnPrefix) {
			return o, flags.Usage("--reap %.60q: no lock has a name that begins with %q: such names are for records of "+
				"Tenure itself", prefix, driver.OwnPrefix)
		}
	}
	if log.Enabled(context.Background(), slog.LevelDebug) {
		o.Logger = log
	}
	return o, nil
}

// addresses reads --listen, and refuses what would be open to others unasked.
func (f *serviceFlags) addresses() ([]address, error) {
	texts := f.Listen
	if len(texts) == 0 {
		texts = []string{defaultListen}
	}
	var all []address
	for _, text := range texts {
		a, err := parseAddress(text)
		if err != nil {
			return nil, flags.Usage("--listen: %w", err)
		}
		all = append(all, a)
	}
	return all, nil
}

// proxies reads --trusted-proxies.
func (f *serviceFlags) proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range f.TrustedProxies {
		network, err := netip.ParsePrefix(text)
		if ip, bad := netip.ParseAddr(text); bad == nil && ip.Zone() == "" {
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, flags.Usage("--trusted-proxies %.60q is not a network: write 10.0.0.0/8, or the address of a proxy", text)
		case network.Bits() == 0:
			return nil, flags.Usage("--trusted-proxies %.60q covers all clients, which could then claim any address: name "+
				"the networks of the proxies", text)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

// open reports an address that others can connect to.
func open(all []address) (address, bool) {
	i := slices.IndexFunc(all, func(a address) bool { return !a.local() })
	if i < 0 {
		return address{}, false
	}
	return all[i], true
}

// encryption reads the files of TLS, and returns the hosts that the service answers to.
func (f *serviceFlags) encryption(s *service, log *slog.Logger) (hosts []string, err error) {
	hosts = slices.Clone(f.AllowHost)
	for _, a := range s.addresses {
		if a.network == "tcp" && !a.local() && !a.everywhere() {
			hosts = append(hosts, a.host)
		}
	}
	outside, exposed := open(s.addresses)
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return nil, flags.Usage("--tls-cert and --tls-key go together: one of them is missing")
	case f.TLSCert != "" && f.PlainHTTP:
		return nil, flags.Usage("--tls-cert and --plain-http exclude each other")
	case f.ClientCA != "" && f.TLSCert == "":
		return nil, flags.Usage("--client-ca needs --tls-cert and --tls-key: client certificates need TLS")
	case f.TLSCert == "" && exposed && !f.PlainHTTP:
		return nil, flags.Usage("--listen %s can be reached from other machines: give --tls-cert and --tls-key, or "+
			"--plain-http if no one else can listen on that network", outside)
	case f.TLSCert == "" && exposed:
		log.Warn("serving without encryption: anyone who can listen on the network can read tokens, and take locks with them",
			"listen", outside.String())
	}
	if f.TLSCert != "" {
		files, err := newCertificates(f.TLSCert, f.TLSKey, f.ClientCA, log)
		if err != nil {
			return nil, flags.Usage("%w", err)
		}
		s.files, s.tls = files, files.server()
		hosts = append(hosts, files.names()...)
	}
	if exposed && len(hosts) == 0 {
		return nil, flags.Usage("--listen %s can be reached from other machines, but no host name is given that they "+
			"call it by: give --allow-host HOST, such as locks.example.com", outside)
	}
	return hosts, nil
}

// known reads the tokens file. Without --tokens, and only for this machine, it makes one.
func (f *serviceFlags) known(all []address, log *slog.Logger) (*server.Principals, error) {
	path := ""
	switch outside, exposed := open(all); {
	case f.Tokens != nil:
		path = *f.Tokens
	case exposed:
		return nil, flags.Usage("--listen %s can be reached from other machines: say who may do what, with --tokens "+
			"FILE; tenured token writes such a file", outside)
	default:
		own, err := tokenfile.Own()
		if err != nil {
			return nil, flags.Usage("%w", err)
		}
		path = own
		made, err := tokenfile.MakeOwn(path)
		if err != nil {
			return nil, flags.Usage("the token file cannot be made: %w: name one with --tokens", err)
		}
		log.Info("this user's token is in a file; tenured token prints it", "file", path, "made_now", made)
	}
	p, err := server.OpenPrincipals(path, log)
	if err != nil {
		return nil, flags.Usage("--tokens: %w", err)
	}
	return p, nil
}

// server makes the handler.
func (f *serviceFlags) server(s *service, hosts []string, log *slog.Logger) (*server.Server, error) {
	var pages http.Handler
	if !f.NoPage {
		pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.pages.ServeHTTP(w, r) })
	}
	var verified func(*http.Request) bool
	if s.files != nil {
		verified = s.files.verified
	}
	return server.New(s.client, server.Options{
		Principals: s.principals, Hosts: hosts, Public: f.Public, PublicMetrics: f.PublicMetrics, Pages: pages,
		Logger: log, TrustedProxies: s.proxies, Known: knownConn, Verified: verified,
		Limits: server.Limits{Waits: f.MaxWaits, Calls: float64(f.MaxCalls), Beats: float64(f.MaxHeartbeats)},
	})
}

// identify logs which store this is, and gives it an identity if it has none.
func (s *service) identify(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.Options().LeaseDuration)
	defer cancel()
	id, err := doctor.Identify(ctx, s.store)
	if err != nil {
		log.Warn("the identity of the store can be neither read nor written", "error", flags.OneLine(err))
		return
	}
	log.Info("store", "identity", id)
}

// close ends the client, and with it the grants that no client has taken.
func (s *service) close() {
	if s.pages != nil {
		s.pages.Close()
	}
	if s.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*s.client.Options().RequestTimeout)
		defer cancel()
		_ = s.client.Close(ctx) // what is left runs out
	}
	_ = s.store.Close()
}
