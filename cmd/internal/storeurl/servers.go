// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/zkstore"
)

// server is a host of a URL. An engine may have several, after a user:
//
//	//USER:PASSWORD@HOST:PORT,HOST:PORT/
//
// It includes the zone of an IPv6 address after its "%". Port is empty if the URL has none.
type server struct{ name, port string }

// PasswordVariable is the environment variable with the password of a store whose URL has a
// user but no password.
const PasswordVariable = "TENURE_STORE_PASSWORD"

// readServers reads the part before the path. Errors quote nothing that may be a password.
func (p *place) readServers(authority string) (err error) {
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, has := strings.Cut(authority[:at], ":")
		hosts = authority[at+1:]
		var err2 error
		p.user, err = unescape(user)
		p.password, err2 = unescape(password)
		if err != nil || err2 != nil || user == "" || has && password == "" {
			return errors.New(`the text before "@" is neither USER nor USER:PASSWORD with characters such as ` +
				`"/", "?", "@" and "%" written as %2F, %3F, %40 and %25`)
		}
	}
	for _, host := range strings.Split(hosts, ",") {
		h, err := readServer(host)
		if err != nil {
			return fmt.Errorf("%w: %s", err, p.write)
		}
		p.hosts = append(p.hosts, h)
	}
	return nil
}

var errHost = errors.New("a host is missing, or cannot be read")

func readServer(text string) (h server, err error) {
	switch inside, bracket := strings.CutPrefix(text, "["); {
	case bracket:
		inside, behind, closed := strings.Cut(inside, "]")
		h.name, err = unescape(inside)
		ip, noIP := netip.ParseAddr(h.name)
		port, colon := strings.CutPrefix(behind, ":")
		if err != nil || noIP != nil || !closed || !colon && behind != "" || url.QueryEscape(ip.Zone()) != ip.Zone() {
			return h, errHost
		}
		h.port = port
	case strings.Count(text, ":") > 1:
		return h, errors.New("a host has more than one colon: put an IPv6 address in brackets, as [2001:db8::1]")
	default:
		h.name, h.port, _ = strings.Cut(text, ":")
		if h.name, err = unescape(h.name); err != nil || strings.ContainsAny(h.name, " ,?%@\t\n") {
			return h, errHost
		}
	}
	if n, err := strconv.ParseUint(h.port, 10, 16); h.port != "" && (err != nil || n == 0) {
		return h, errors.New("the text after a host is not a port from 1 to 65535")
	}
	return h, nil
}

// zoneEscaped returns the address of a host as a URL has it, with the zone of its link.
func zoneEscaped(host string) string { return strings.Replace(host, "%", "%25", 1) }

func (p *place) authority(secrets bool) string {
	if p.hosts == nil {
		return p.name
	}
	text := ""
	if p.user != "" {
		text = escapeAll(p.user)
		if p.password != "" && secrets {
			text += ":" + escapeAll(p.password)
		}
		text += "@"
	}
	for i, h := range p.hosts {
		if i > 0 {
			text += ","
		}
		if strings.Contains(h.name, ":") {
			text += "[" + zoneEscaped(h.name) + "]"
		} else {
			text += escapeAll(h.name)
		}
		if h.port != "" {
			text += ":" + h.port
		}
	}
	return text
}

func (p *place) firstHost() string {
	if len(p.hosts) == 0 || p.hosts[0].name == "" || filepath.IsAbs(p.hosts[0].name) {
		return here // a socket of this machine
	}
	return p.hosts[0].name
}

func checkPasswords(p *place) error {
	switch file := p.values["password_file"]; {
	case file != "" && p.user == "":
		return errors.New("password_file= needs a user: write USER@ before the hosts")
	case file != "" && p.password != "":
		return errors.New("there are two passwords: leave out either the one in the URL, or password_file=")
	}
	return nil
}

// knownPassword returns the user's password: from the URL, the file, or the environment.
func (p *place) knownPassword() (string, error) {
	switch file := p.values["password_file"]; {
	case p.user == "" || p.password != "":
		return p.password, nil
	case file != "":
		return passwordIn(file)
	}
	return strings.TrimRight(os.Getenv(PasswordVariable), "\r\n"), nil
}

// passwordIn returns the password that a file has.
func passwordIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", driver.Permanent(fmt.Errorf("password_file=: %w", err))
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// reread returns a function that reads again, for what may be renewed while a store is
// open. Where it cannot read, it returns what there was last, and why.
func reread[T any](last T, read func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := read()
		if err == nil {
			last = now
		}
		return last, err
	}
}

// cluster begins the row of etcd and of ZooKeeper, whose hosts have a port, and whose path is a
// prefix. The files of ca=, cert= and key= are PEM; without ca= the authorities of the system
// count.
func cluster(scheme, usage, write, port string) *engine {
	return &engine{
		scheme: scheme, usage: usage, write: write,
		begin: func(p *place, authority, path string) error {
			if err := p.readServers(authority); err != nil {
				return err
			}
			for i := range p.hosts {
				h := &p.hosts[i]
				if h.name == "" || strings.Contains(h.name, "/") {
					return fmt.Errorf("%w: %s", errHost, write)
				}
				if h.port == "" {
					h.port = port
				}
			}
			return p.readPath(path)
		},
		parameters: []parameter{file("ca"), file("cert"), file("key"), file("password_file")},
		check:      checkCluster, probed: true,
	}
}

func checkCluster(p *place) error {
	if (p.values["cert"] == "") != (p.values["key"] == "") {
		return errors.New("cert= and key= go together: the client's certificate, and its key")
	}
	return checkPasswords(p)
}

func (p *place) addresses() (all []string) {
	for _, h := range p.hosts {
		all = append(all, net.JoinHostPort(h.name, h.port))
	}
	return all
}

// reachable returns why no host accepts a connection, which is encrypted if config is not nil.
// The clients of some engines retry forever and do not report it.
func (p *place) reachable(ctx context.Context, config *tls.Config) error {
	var first error
	refused := false
	for _, address := range p.addresses() {
		dialing, cancel := context.WithTimeout(ctx, openPatience/time.Duration(len(p.hosts)+1))
		conn, err := dial(dialing, address, config)
		cancel()
		if err == nil {
			_ = conn.Close() // it has served
			return nil
		}
		refused = refused || errors.As(err, new(*tls.CertificateVerificationError))
		first = errors.Join(first, err)
	}
	what, see := "none of the hosts can be reached", "check that the engine runs, and that the addresses are right"
	if len(p.hosts) == 1 {
		what, see = p.addresses()[0]+" cannot be reached", "check that the engine runs, and that the address is right"
	}
	if refused {
		see = "this client does not accept its certificate"
	}
	return fmt.Errorf("%s: %s: %w", what, see, first)
}

// dial makes a connection, encrypted if there is a config for that.
func dial(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || config == nil {
		return conn, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
		config.ServerName, _, _ = strings.Cut(config.ServerName, "%") // a certificate has no zone
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent that matters
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// encryption returns how the client verifies the servers, and identifies itself; nil if
// neither the scheme nor a file asks for encryption.
func (p *place) encryption() (*tls.Config, error) {
	ca, cert := p.values["ca"], p.values["cert"]
	if p.scheme != "etcds" && p.scheme != "rediss" && !p.is("tls") && ca == "" && cert == "" {
		return nil, nil //nolint:nilnil // as in the configurations of the engines
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("ca=: %w", err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, driver.Permanent(fmt.Errorf("ca=%s contains no certificate in PEM format", ca))
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, p.values["key"])
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("cert=, key=: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// etcd is also for etcds:, which asks for encryption, as ca= and cert= do.
func etcd(scheme string) *engine {
	usage := ""
	if scheme == "etcd" {
		usage = "etcd://HOST:2379/PREFIX"
	}
	e := cluster(scheme, usage,
		"write etcd://HOST:2379/PREFIX, or etcd://HOST:2379,HOST:2379,HOST:2379/PREFIX", "2379")
	e.unasked = func(p *place) (driver.Store, error) {
		return etcdstore.New(clientv3.NewCtxClient(context.Background()), p.etcdOptions())
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		config, options, err := p.etcdConfig()
		if err != nil {
			return nil, err
		}
		if !ask {
			return etcdstore.Connect(config, options)
		}
		if err := p.reachable(ctx, config.TLS); err != nil { // the client would try on and on
			return nil, err
		}
		store, err := etcdstore.Open(ctx, config, options)
		if err != nil {
			return nil, fmt.Errorf("etcd at %s: %w", strings.Join(p.addresses(), ","), err)
		}
		return store, nil
	}
	return e
}

func (p *place) etcdOptions() *etcdstore.Options {
	if p.path == "" {
		return &etcdstore.Options{}
	}
	return &etcdstore.Options{Prefix: p.path + "/"}
}

// etcdConfig returns the configuration of a client, which uses no proxy from the environment. It
// reads the files that the URL names. Each connection reads the TLS files again.
func (p *place) etcdConfig() (config clientv3.Config, options *etcdstore.Options, err error) {
	options = p.etcdOptions()
	if file := p.values["password_file"]; file != "" {
		options.Password = func(context.Context) (string, error) { return passwordIn(file) }
	}
	config = clientv3.Config{
		Username: p.user, DialTimeout: openPatience, DialOptions: []grpc.DialOption{grpc.WithNoProxy()},
	}
	if config.Password, err = p.knownPassword(); err != nil {
		return config, options, err
	}
	if config.TLS, err = p.encryption(); err != nil {
		return config, options, err
	}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		config.DialOptions = append(config.DialOptions, grpc.WithTransportCredentials(
			handshakes{credentials.NewTLS(config.TLS), reread(config.TLS, p.encryption)}))
	}
	for _, address := range p.addresses() {
		config.Endpoints = append(config.Endpoints, scheme+zoneEscaped(address))
	}
	return config, options, nil
}

// handshakes are the credentials of a client of etcd that reads the files of encryption for
// each connection.
type handshakes struct {
	credentials.TransportCredentials
	files func() (*tls.Config, error)
}

func (h handshakes) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, unread := h.files()
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil && unread != nil {
		err = fmt.Errorf("%w; and %w", err, unread)
	}
	return conn, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }

func zookeeper() *engine {
	e := cluster("zookeeper", "zookeeper://HOST:2181/ROOT",
		"write zookeeper://HOST:2181/ROOT, or zookeeper://HOST:2181,HOST:2181,HOST:2181/ROOT", "2181")
	e.parameters = append(e.parameters, parameter{name: "session", read: func(_ *place, value string) (string, error) {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return "", fmt.Errorf("session=%.20s is not a duration: write one such as 10s", shown(value))
		case d == 0:
			return "", nil
		}
		return d.String(), nil
	}})
	e.unasked = func(p *place) (driver.Store, error) { // without a password
		o := p.zooKeeperOptions()
		return zkstore.New(p.addresses(), &o)
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		options, err := p.zooKeeperSecrets()
		if err != nil {
			return nil, err
		}
		if !ask {
			return zkstore.New(p.addresses(), &options)
		}
		if err := p.reachable(ctx, nil); err != nil { // the client would try on and on
			return nil, err
		}
		store, err := zkstore.Open(ctx, p.addresses(), &options)
		if err != nil {
			return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(p.addresses(), ","), err)
		}
		return store, nil
	}
	return e
}

func (p *place) zooKeeperOptions() zkstore.Options {
	session, _ := time.ParseDuration(p.values["session"]) // it was read, or is the default: 0
	o := zkstore.Options{Session: session, User: p.user}
	if p.path != "" {
		o.Root = "/" + p.path
	}
	return o
}

// zooKeeperSecrets are the options with the password and the encryption. It reads the files that
// the URL names. Each connection reads the TLS files again.
func (p *place) zooKeeperSecrets() (o zkstore.Options, err error) {
	o = p.zooKeeperOptions()
	if o.Password, err = p.knownPassword(); err != nil {
		return o, err
	}
	config, err := p.encryption()
	if err != nil || config == nil {
		return o, err
	}
	files := reread(config, p.encryption)
	o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		config, unread := files()
		conn, err := dial(ctx, address, config)
		if err != nil && unread != nil {
			err = fmt.Errorf("%w; and %w", err, unread)
		}
		return conn, err
	}
	return o, nil
}
