// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenurelock/tenure/driver"
)

const (
	// diagnosisPatience bounds the questions to an API server, all of them together.
	diagnosisPatience = 15 * time.Second
	// mostLocks bounds how many locks are read to find which clients have written them.
	// Each page of a list reads all Leases.
	mostLocks = 1000
)

// Diagnose examines the API server, the rights of the credentials, and which clients have
// written the Leases. It implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, _ driver.Timing) []driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	version, ok := s.version(ctx)
	if !ok {
		return nil // each call reports it
	}
	all := []driver.Finding{s.encryption(), version}
	user := s.user(ctx)
	if user != "" {
		f := driver.OK("user", "the API server takes the credentials for %q", user)
		if everything, err := s.may(ctx, "", "*", "*", "*"); err == nil && everything {
			f = driver.Warn("user", "%s, who may do everything in the cluster: no permission protects such a user from "+
				"mistakes", f.Finding).
				Advise("use the credentials of another user, and grant it what tenure table policy prints")
		}
		all = append(all, f)
	}
	missing, err := s.missing(ctx)
	if err != nil {
		all = append(all, driver.Warn("rights", "the API server does not report the user's rights: %v", err).
			Advise("see below whether the store can be read and written"))
	} else {
		all = append(all, rights(s.namespace, user, missing)...)
	}
	return append(all, s.writers(ctx)...)
}

// version says which server answers. It is not ok if there was no usable answer.
func (s *Store) version(ctx context.Context) (f driver.Finding, ok bool) {
	var is struct{ GitVersion string }
	err := s.calls.do(ctx, s.calls.rest.Get().AbsPath("/version").MaxRetries(0), nil, &is)
	host := s.server.Host
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		return driver.OK("server", "%s answers, version %s", host, strings.TrimPrefix(is.GitVersion, "v")), true
	case !errors.As(err, &status) || apierrors.IsUnauthorized(err):
		return f, false
	case apierrors.IsForbidden(err):
		return driver.OK("server", "%s answers, but does not report its version", host), true
	}
	return driver.Warn("server", "%s answers: %v", host, err).Advise("see its log, and whether it is an API " +
		"server"), true
}

// encryption also says whether another server could get the credentials.
func (s *Store) encryption() driver.Finding {
	host := s.server.Hostname()
	if s.server.Scheme == "https" && s.unchecked && !driver.Near(host) {
		return driver.Warn("encryption", "the connection is encrypted, but the server's certificate is not checked").
			Advise("another server could impersonate it, and get the credentials: name its " +
				"certificate-authority in the kubeconfig, " +
				"instead of insecure-skip-tls-verify")
	}
	return driver.Encrypted(s.server.Scheme == "https", "name the server with https: in the kubeconfig; "+
		"the credentials are sent over it, too", host)
}

// review asks the API server about the credentials themselves.
func (s *Store) review(ctx context.Context, group, resource string, in, out any) error {
	r := s.calls.rest.Post().AbsPath("/apis", group, "v1", resource).MaxRetries(0)
	return s.calls.do(ctx, r.SetHeader("Content-Type", runtime.ContentTypeJSON), in, out)
}

// user returns whom the API server takes the credentials for, "" if it does not say. Servers
// before 1.28 do not.
func (s *Store) user(ctx context.Context) string {
	var is struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	question := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	if err := s.review(ctx, "authentication.k8s.io", "selfsubjectreviews", question, &is); err != nil {
		return ""
	}
	return is.Status.UserInfo.Username
}

// may asks whether the credentials may do something.
func (s *Store) may(ctx context.Context, namespace, verb, group, resource string) (bool, error) {
	var is struct{ Status struct{ Allowed bool } }
	err := s.review(ctx, "authorization.k8s.io", "selfsubjectaccessreviews", map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{
			"namespace": namespace, "verb": verb, "group": group, "resource": resource,
		}},
	}, &is)
	return is.Status.Allowed, err
}

// missing returns the verbs that are not granted, for each resource.
func (s *Store) missing(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	for _, r := range Rights() {
		for _, verb := range r.Verbs {
			may, err := s.may(ctx, s.namespace, verb, r.Group, r.Resource)
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

// rights assesses missing rights.
func rights(namespace, user string, missing map[string][]string) (all []driver.Finding) {
	if user == "" {
		user = "the credentials"
	} else {
		user = fmt.Sprintf("%q", user)
	}
	const advice = "grant what tenure table policy prints"
	if len(missing["leases"]) == 0 {
		all = append(all, driver.OK("rights", "%s can read and write Leases in namespace %s", user, namespace))
	}
	for _, verb := range missing["leases"] {
		without, what := driver.Bad, ""
		switch verb {
		case "get":
			what = "no process can wait for a lock or read it"
		case "create":
			what = "no lock can be taken for the first time"
		case "patch":
			what = "no lock can be taken, renewed or released"
		case "list":
			without, what = driver.Warn, "tenure status shows only locks that it is given by name"
		case "watch":
			without, what = driver.Warn, "waiters are not notified of a release, and poll for it"
		case "delete":
			without, what = driver.Warn, "the oldest records of a full history stay in the namespace, and "+
				"tenure sweep deletes nothing"
		}
		all = append(all, without("rights", "%s must not %s Leases in namespace %s: %s", user, verb, namespace, what).
			Advise(advice))
	}
	if verbs := missing["configmaps"]; len(verbs) > 0 {
		all = append(all, driver.Warn("rights", "%s must not %s ConfigMaps in namespace %s: data of more "+
			"than 4 kB are refused",
			user, strings.Join(verbs, ", "), namespace).Advise(advice+", unless no lock has such data"))
	}
	return all
}

// writers finds which clients have written the locks. If they cannot be listed, rights has
// reported that.
func (s *Store) writers(ctx context.Context) (all []driver.Finding) {
	if s.options.SharedLease {
		if locks, err := s.locks(ctx); err == nil {
			all = append(all, electors(locks))
		}
	}
	// A view of the same namespace for processes with another shared=, which have another
	// Lease for the same lock.
	other := &Store{calls: s.calls, namespace: s.namespace, options: s.options, life: s.life, page: s.page}
	other.options.SharedLease = !s.options.SharedLease
	if locks, err := other.locks(ctx); err == nil {
		all = append(all, s.apart(other, locks)...)
	}
	return all
}

// locks returns the records of locks.
func (s *Store) locks(ctx context.Context) (all []driver.Record, err error) {
	for cursor := ""; len(all) < mostLocks; {
		page, err := s.List(ctx, "", cursor)
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

// electors says which locks other clients have. Tenure knows these clients only from
// their Leases.
func electors(locks []driver.Record) driver.Finding {
	theirs, held, example := 0, 0, driver.Record{}
	for _, rec := range locks {
		if !Foreign(rec) {
			continue
		}
		theirs++
		if rec.State == driver.Held {
			held++
			example = rec
		}
	}
	count := driver.Counted(len(locks), "lock")
	if theirs == 0 {
		return driver.OK("electors", "%s, none of them last written by another client", count).
			Advise("shared=true is for a time in which electors of client-go use the same Leases: leave it " +
				"out when none will come back")
	}
	f := driver.OK("electors", "%s, %d of them last written by another client, such as an elector of "+
		"client-go", count, theirs)
	if held > 0 {
		f.Finding += fmt.Sprintf("; it holds %d, such as %q, held by %q", held, example.Key, example.Owner)
		f.Advice = "an elector cannot be asked to step down; its lock is taken when it is free, or when its " +
			"own duration has passed without a renewal"
	}
	return f
}

// apart says which locks are used by processes with another shared=.
func (s *Store) apart(other *Store, locks []driver.Record) []driver.Finding {
	used, held, example := 0, 0, ""
	for _, rec := range locks {
		if Foreign(rec) || s.object(rec.Key) == other.object(rec.Key) {
			continue
		}
		is := rec.State != driver.Released && rec.State != driver.Past
		if used++; is {
			held++
		}
		if example == "" || is {
			example = fmt.Sprintf("%q in Lease %s", rec.Key, other.object(rec.Key))
		}
	}
	with, excludes := "without shared=true", "such a lock does not exclude processes with it"
	if other.options.SharedLease {
		with, excludes = "with shared=true", "such a lock does not exclude processes without it"
	}
	const advice = "write it in the URLs of all processes that use these locks, or of none"
	switch {
	case held > 0:
		return []driver.Finding{driver.Warn("shared", "held %s: %s, such as %s; %s", with, driver.Counted(held, "lock"), example, excludes).
			Advise(advice)}
	case used > 0:
		return []driver.Finding{driver.OK("shared", "used %s, and free: %s, such as %s", with, driver.Counted(used, "lock"), example).
			Advise(advice)}
	}
	return nil
}

// DefaultRole is the name of the Role by default.
const DefaultRole = "tenure"

// roleForm is narrower than the rule of Kubernetes, which allows names that a shell
// needs quoted.
var roleForm = pattern(`^[A-Za-z0-9]+([-_.:]+[A-Za-z0-9]+)*$`)

const maxRole = 253

// Policy returns the Role that a service account needs. It implements [driver.Granter], and
// sends nothing.
func (s *Store) Policy(_ context.Context, o driver.PolicyOptions) (text, note string, err error) {
	if o.Role == "" {
		o.Role = DefaultRole
	}
	if len(o.Role) > maxRole || !roleForm().MatchString(o.Role) {
		return "", "", driver.Unsupported(fmt.Errorf("--role %.60q: it must consist of letters, digits and "+
			"the characters - _ . :, "+
			"and begin and end with a letter or digit", o.Role))
	}
	if o.ReadOnly {
		return ReadOnlyPolicy(s.namespace, o.Role), "", nil
	}
	return Policy(s.namespace, o.Role), "", nil
}
