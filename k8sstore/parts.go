// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// The annotations of an object hold 256 KiB in all, and each heartbeat writes all of
// them. So long data, and a record with very many requests, are in a ConfigMap each. It
// has a random name that is never used again, is written before the Lease that names it,
// and never changed: a Lease and what it names are one state. It is removed after a
// write that makes sure that no Lease can name it any more.
const (
	// maxInline is the longest data that are kept within the record.
	maxInline = 4 << 10
	// maxText is the longest text of a record in an annotation.
	maxText = 64 << 10

	partPrefix = "part." // of names, behind the prefix of the store
	partEntry  = "part"  // the entry of the ConfigMap
	// labelOf has the hash of the key, and labelBase the resourceVersion of the Lease
	// that the part's write replaces.
	labelOf   = domain + "of"
	labelBase = domain + "base"
	noBase    = "none"
)

// configMap has the used fields of a ConfigMap.
type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Immutable  bool              `json:"immutable"`
	BinaryData map[string][]byte `json:"binaryData"`
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// putPart writes a part for a Lease in the given state. Whatever its error, the Lease
// was not written.
func (s *Store) putPart(ctx context.Context, is *state, key string, content []byte) (*part, error) {
	base := is.rev
	if base == "" {
		base = noBase
	}
	p := &part{Name: s.options.Prefix + partPrefix + strings.ToLower(rand.Text()), Sum: sumOf(content)}
	o := configMap{APIVersion: "v1", Kind: "ConfigMap", Immutable: true, BinaryData: map[string][]byte{partEntry: content}}
	o.Metadata.Name, o.Metadata.Namespace = p.Name, s.namespace
	o.Metadata.Labels = map[string]string{labelStore: s.label(), labelOf: hashOf(key), labelBase: base}
	o.Metadata.Annotations = map[string]string{noteKey: key}
	if err := s.calls.create(ctx, configMaps, s.namespace, o, nil); err != nil {
		return nil, s.failed(err)
	}
	return p, nil
}

// part reads a part. The error matches ErrNotFound if it is gone.
func (s *Store) part(ctx context.Context, p *part) ([]byte, error) {
	var o configMap
	switch err := s.calls.get(ctx, configMaps, s.namespace, p.Name, nil, &o); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: ConfigMap %s/%s", driver.ErrNotFound, s.namespace, p.Name)
	case err != nil:
		return nil, s.failed(err)
	}
	content := o.BinaryData[partEntry]
	if sumOf(content) != p.Sum {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w: it was changed", s.namespace, p.Name, driver.ErrUnreadable)
	}
	return content, nil
}

// partsOf returns the parts of a key that no write can name any more after a write that
// replaces the given state. It is called before that write, which succeeds only if the
// state has not changed until then. So each part that exists now was made for that state,
// and is late, or for an earlier state. Parts for a Lease to be created stay: it may
// still be created after this one was deleted.
func (s *Store) partsOf(ctx context.Context, key string) []string {
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	query := url.Values{"labelSelector": {labelOf + "=" + hashOf(key) + "," + labelBase + "!=" + noBase}}
	if err := s.calls.get(ctx, configMaps, s.namespace, "", query, &list); err != nil {
		return nil // they wait for the next one
	}
	var names []string
	for _, o := range list.Items {
		if strings.HasPrefix(o.Metadata.Name, s.options.Prefix+partPrefix) && o.Metadata.Annotations[noteKey] == key {
			names = append(names, o.Metadata.Name)
		}
	}
	return names
}

// dropParts removes objects that nothing names, except the given ones. Objects that it
// cannot remove stay until the next write of long data.
func (s *Store) dropParts(ctx context.Context, keep parts, names ...string) {
	for _, name := range names {
		if keep.Data != nil && keep.Data.Name == name || keep.Record != nil && keep.Record.Name == name {
			continue
		}
		_ = s.calls.remove(ctx, configMaps, s.namespace, name, "") // as above
	}
}

// names returns the objects of the parts.
func (p parts) names() (all []string) {
	for _, one := range []*part{p.Data, p.Record} {
		if one != nil {
			all = append(all, one.Name)
		}
	}
	return all
}

// lay writes the parts of a record that is to replace a state, and returns the text of
// the rest. The caller drops them if the Lease is not written.
func (s *Store) lay(ctx context.Context, is *state, rec driver.Record) (text string, apart, written parts, old []string, err error) {
	rest := rec
	if len(rec.Data) > maxInline {
		rest.Data = nil
		if was := is.parts.Data; was != nil && was.Sum == sumOf(rec.Data) {
			apart.Data = was
		} else {
			old = s.partsOf(ctx, rec.Key)
			if apart.Data, err = s.putPart(ctx, is, rec.Key, rec.Data); err != nil {
				return "", parts{}, parts{}, nil, err
			}
			written.Data = apart.Data
		}
	}
	text = recordcodec.Encode(rest)
	if len(text) > maxText {
		if old == nil {
			old = s.partsOf(ctx, rec.Key)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err1 := io.WriteString(z, text)
		if err = errors.Join(err1, z.Close()); err == nil {
			apart.Record, err = s.putPart(ctx, is, rec.Key, packed.Bytes())
		}
		if err != nil {
			s.dropParts(ctx, parts{}, written.names()...)
			return "", parts{}, parts{}, nil, err
		}
		written.Record, text = apart.Record, ""
	}
	return text, apart, written, append(old, is.parts.names()...), nil
}

// mostText bounds the unpacked text.
const mostText = 8 << 20

// complete reads the parts of the record of a state. Gone says that a part is missing:
// the Lease has changed since it was read, or the part was deleted.
func (s *Store) complete(ctx context.Context, key string, is *state) (gone bool, err error) {
	if is.err != nil {
		return false, nil
	}
	data := func() error {
		if is.parts.Data == nil {
			return nil
		}
		content, err := s.part(ctx, is.parts.Data)
		is.rec.Data = content
		return err
	}
	record := func() error {
		if is.parts.Record == nil || is.foreign {
			return nil
		}
		content, err := s.part(ctx, is.parts.Record)
		if err != nil {
			return err
		}
		z, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
		}
		text, err := io.ReadAll(io.LimitReader(z, mostText))
		if err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
		}
		rec, err := recordcodec.Decode(string(text))
		if err == nil {
			if err = checkOwn(key, rec.Token, rec, false); err != nil {
				err = fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
			}
		}
		is.rec = rec
		return err
	}
	err = record()
	if err == nil {
		err = data()
	}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return true, err
	case errors.Is(err, driver.ErrUnreadable):
		is.err, err = err, nil
	}
	return false, err
}
