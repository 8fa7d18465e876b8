// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/k8sstore"
)

// Kubernetes is the API server of a store in a Kubernetes cluster.
type Kubernetes struct {
	Options k8sstore.Options
	// Config returns how the API server is reached, and the namespace.
	Config func() (*rest.Config, string, error)
}

const (
	// kubernetesPatience bounds the questions to an API server, all of them together.
	kubernetesPatience = 15 * time.Second
	// mostAnswer bounds an answer in bytes.
	mostAnswer = 1 << 20
)

// eventualReads says that looks are answered from the memory of the API server.
func (k Kubernetes) eventualReads() bool { return true }

// examine looks at the API server, and at what it lets the credentials do.
func (k Kubernetes) examine(ctx context.Context, p *Patient) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesPatience)
	defer cancel()
	config, namespace, err := k.Config()
	if err != nil {
		return // the store says so, too
	}
	server, err := newAPIServer(config)
	if err != nil {
		return // likewise
	}
	defer server.client.CloseIdleConnections()
	version, err := server.version(ctx)
	if err != nil {
		return // likewise
	}
	p.Tell(server.encryption())
	p.Tell(version)
	role := server.who(ctx)
	if role.finding.Check != "" {
		p.Tell(role.finding)
	}
	missing, err := server.missing(ctx, namespace)
	if err != nil {
		p.Tell(Finding{"rights", Warn, "the API server does not say which there are: " + err.Error(), "see below whether the store can be read and written"})
	} else {
		for _, f := range kubernetesRights(namespace, role.name, missing) {
			p.Tell(f)
		}
	}
	k.locks(ctx, p, config, namespace)
}

// apiServer is asked past the store.
type apiServer struct {
	client *http.Client
	base   *url.URL
	tls    *rest.TLSClientConfig
}

func newAPIServer(config *rest.Config) (*apiServer, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &apiServer{client, base, &config.TLSClientConfig}, nil
}

// refusal is an answer that is none.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// ask makes a request, a POST if there is something to send.
func (a *apiServer) ask(ctx context.Context, path string, in, out any) error {
	method, body := http.MethodGet, []byte(nil)
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", rest.DefaultKubernetesUserAgent())
	answer, err := a.send(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		why := struct{ Message string }{answer.Status}
		_ = json.Unmarshal(text, &why) // what is no object leaves the status
		return &refusal{answer.StatusCode, why.Message}
	}
	return json.Unmarshal(text, out)
}

// send makes a request, until its context ends: an exec plugin of the kubeconfig heeds none.
func (a *apiServer) send(request *http.Request) (*http.Response, error) {
	type got struct {
		*http.Response
		err error
	}
	done := make(chan got, 1)
	go func() {
		answer, err := a.client.Do(request) //nolint:bodyclose // the caller does, or nobody has it: then the command ends
		done <- got{answer, err}
	}()
	select {
	case g := <-done:
		return g.Response, g.err
	case <-request.Context().Done():
		return nil, context.Cause(request.Context())
	}
}

// version says that the server answers, and which one it is. With an error there was no
// answer to go by: the store says so, too.
func (a *apiServer) version(ctx context.Context) (f Finding, err error) {
	f = Finding{"server", OK, a.base.Host + " answers", ""}
	var is struct{ GitVersion string }
	err = a.ask(ctx, "version", nil, &is)
	var refused *refusal
	switch {
	case err == nil:
		f.Finding += ", version " + strings.TrimPrefix(is.GitVersion, "v")
	case !errors.As(err, &refused) || refused.code == http.StatusUnauthorized:
		return f, err
	case refused.code == http.StatusForbidden:
		f.Finding += ", and does not say its version"
	default:
		f.Level, f.Finding, f.Advice = Warn, fmt.Sprintf("%s answers: %v", a.base.Host, refused), "see its log, and whether it is an API server"
	}
	return f, nil
}

// encryption tells whether others can read a token, and change what is sent.
func (a *apiServer) encryption() Finding {
	near := near(a.base.Hostname())
	switch {
	case a.base.Scheme != "https" && near:
		return Finding{"encryption", OK, "the connection is not encrypted, and does not leave this machine", ""}
	case a.base.Scheme != "https":
		return Finding{"encryption", Warn, "the connection is not encrypted", "others on the way can read and change it, credentials included: name the server with https: in the kubeconfig"}
	case a.tls.Insecure && !near:
		return Finding{"encryption", Warn, "the connection is encrypted, and the server's certificate is not checked", "another server could stand in for it, and get the credentials: name its certificate-authority in the kubeconfig, in the place of insecure-skip-tls-verify"}
	}
	return Finding{"encryption", OK, "the connection is encrypted", ""}
}

// kubernetesUser is whom the API server takes the credentials for.
type kubernetesUser struct {
	name    string // "": it does not say
	finding Finding
}

// who asks for the user. Servers before 1.28 do not say.
func (a *apiServer) who(ctx context.Context) (u kubernetesUser) {
	var is struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	question := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	if err := a.ask(ctx, "apis/authentication.k8s.io/v1/selfsubjectreviews", question, &is); err != nil {
		return u
	}
	if u.name = is.Status.UserInfo.Username; u.name == "" {
		return u
	}
	u.finding = Finding{"user", OK, fmt.Sprintf("the API server takes the credentials for %q", u.name), ""}
	if all, err := a.may(ctx, "", "*", "*", "*"); err == nil && all {
		u.finding.Level = Warn
		u.finding.Finding += ", who may do everything in the cluster: it refuses such a user no mistake"
		u.finding.Advice = "use the credentials of another one, and grant it what tenure table policy prints"
	}
	return u
}

// may asks whether the credentials may do something.
func (a *apiServer) may(ctx context.Context, namespace, verb, group, resource string) (bool, error) {
	var is struct{ Status struct{ Allowed bool } }
	err := a.ask(ctx, "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": namespace, "verb": verb, "group": group, "resource": resource}},
	}, &is)
	return is.Status.Allowed, err
}

// missing returns the verbs that are not granted, for each resource.
func (a *apiServer) missing(ctx context.Context, namespace string) (map[string][]string, error) {
	all := map[string][]string{}
	for _, r := range k8sstore.Rights() {
		for _, verb := range r.Verbs {
			may, err := a.may(ctx, namespace, verb, r.Group, r.Resource)
			if err != nil {
				return nil, err
			}
			if !may {
				all[r.Resource] = append(all[r.Resource], verb)
			}
		}
	}
	return all, nil
}

// leaseVerbs are what does not work without one of them. What can do without is told by a
// warning.
var leaseVerbs = []struct {
	verb    string
	without Level
	what    string
}{
	{"get", Bad, "nobody can wait for a lock, nor look at it"},
	{"create", Bad, "no lock can be taken that nobody has held yet"},
	{"patch", Bad, "no lock can be taken, renewed or released"},
	{"list", Warn, "tenure status shows nothing unless it is given names"},
	{"watch", Warn, "a waiter hears of no release, and polls for it"},
	{"delete", Warn, "what falls out of a full history stays in the namespace, and tenure sweep clears nothing"},
}

// kubernetesRights says what is to be thought of rights that are missing.
func kubernetesRights(namespace, user string, missing map[string][]string) []Finding {
	if user == "" {
		user = "the credentials"
	} else {
		user = fmt.Sprintf("%q", user)
	}
	const advice = "grant what tenure table policy prints"
	var all []Finding
	lacks := map[string]bool{}
	for _, verb := range missing["leases"] {
		lacks[verb] = true
	}
	if len(lacks) == 0 {
		all = append(all, Finding{"rights", OK, fmt.Sprintf("%s can read and write Leases in namespace %s", user, namespace), ""})
	}
	for _, r := range leaseVerbs {
		if lacks[r.verb] {
			all = append(all, Finding{"rights", r.without, fmt.Sprintf("%s must not %s Leases in namespace %s: %s", user, r.verb, namespace, r.what), advice})
		}
	}
	if verbs := missing["configmaps"]; len(verbs) > 0 {
		all = append(all, Finding{
			"rights", Warn, fmt.Sprintf("%s must not %s ConfigMaps in namespace %s: data of more than 4 kB are refused", user, strings.Join(verbs, ", "), namespace),
			advice + ", unless no lock has such data",
		})
	}
	return all
}

// locks looks at who has written them.
func (k Kubernetes) locks(ctx context.Context, p *Patient, config *rest.Config, namespace string) {
	own, err := k8sstore.New(config, namespace, &k.Options)
	if err != nil {
		return // the store says so, too
	}
	defer own.Close() //nolint:errcheck // it has nothing to lose
	if k.Options.SharedLease {
		if locks, err := lockRecords(ctx, own); err == nil { // the rights have told it
			p.Tell(electors(locks))
		}
	}
	others := k.Options
	others.SharedLease = !others.SharedLease
	other, err := k8sstore.New(config, namespace, &others)
	if err != nil {
		return // likewise
	}
	defer other.Close() //nolint:errcheck // likewise
	locks, err := lockRecords(ctx, other)
	if err != nil {
		return // likewise
	}
	for _, f := range apart(own, other, locks, others.SharedLease) {
		p.Tell(f)
	}
}

// mostLocks bounds how many locks are read to find who has written them. Each page of a
// list reads all Leases.
const mostLocks = 1000

// lockRecords returns the records of locks.
func lockRecords(ctx context.Context, store *k8sstore.Store) (all []driver.Record, err error) {
	for cursor := ""; len(all) < mostLocks; {
		page, err := store.List(ctx, "", cursor)
		if err != nil {
			return nil, err
		}
		for _, rec := range page.Records {
			if !strings.HasPrefix(rec.Key, driver.OwnPrefix) {
				all = append(all, rec)
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

// electors says which locks other clients have. Tenure knows no more of these than their
// Leases tell.
func electors(locks []driver.Record) Finding {
	theirs, held, example := 0, 0, driver.Record{}
	for _, rec := range locks {
		if !k8sstore.Foreign(rec) {
			continue
		}
		theirs++
		if rec.State == driver.Held {
			held++
			example = rec
		}
	}
	f := Finding{"electors", OK, fmt.Sprintf("%s, %d of them last written by another client, such as an elector of client-go", counted(len(locks), "lock"), theirs), ""}
	if theirs == 0 {
		f.Finding = counted(len(locks), "lock") + ", and none that was last written by another client"
		f.Advice = "shared=true is for a time in which electors of client-go use the same Leases: leave it out when none will come back"
	}
	if held > 0 {
		f.Finding += fmt.Sprintf("; it holds %d, such as %q, which %q has", held, example.Key, example.Owner)
		f.Advice = "an elector cannot be asked to step down; its lock is taken when it is free, or when its own duration has passed without a renewal"
	}
	return f
}

// apart says which locks are used by processes with another shared=, which have another
// Lease for the same lock.
func apart(own, other *k8sstore.Store, locks []driver.Record, shared bool) []Finding {
	used, held, example := 0, 0, ""
	for _, rec := range locks {
		if k8sstore.Foreign(rec) || own.LeaseName(rec.Key) == other.LeaseName(rec.Key) {
			continue
		}
		is := rec.State != driver.Released && rec.State != driver.Past
		if used++; is {
			held++
		}
		if example == "" || is {
			example = fmt.Sprintf("%q in Lease %s", rec.Key, other.LeaseName(rec.Key))
		}
	}
	with, excludes := "without shared=true", "that excludes nobody who has it"
	if shared {
		with, excludes = "with shared=true", "that excludes nobody who does not have it"
	}
	const advice = "write it in the URLs of all who use these locks, or of none"
	switch {
	case held > 0:
		return []Finding{{"shared", Warn, fmt.Sprintf("%s, such as %s, %s held %s: %s", counted(held, "lock"), example, isAre(held), with, excludes), advice}}
	case used > 0:
		return []Finding{{"shared", OK, fmt.Sprintf("%s, such as %s, %s used %s, and %s free", counted(used, "lock"), example, wasWere(used), with, isAre(used)), advice}}
	}
	return nil
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func wasWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
