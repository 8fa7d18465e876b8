// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// resource is a kind of objects.
type resource struct{ path, name string }

var (
	leases     = resource{"/apis/coordination.k8s.io/v1", "leases"}
	configMaps = resource{"/api/v1", "configmaps"}
)

// client sends requests to an API server, each once: client-go would repeat a request
// that is answered by 429 or that the server asks to repeat. It logs nothing.
type client struct {
	rest *rest.RESTClient
	http *http.Client
}

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // what errors are made of
	config.APIPath, config.GroupVersion = "/", &schema.GroupVersion{Version: "v1"}
	config.ContentConfig.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	h, err := boundPlugin(config)
	if err != nil {
		return nil, err
	}
	r, err := rest.UnversionedRESTClientForConfigAndClient(config, h)
	return &client{r, h}, err
}

// drop closes idle connections: a network that has dropped one of them has mostly dropped
// them all.
func (c *client) drop() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

func silent(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// request begins a request for an object, or for all objects if it has no name.
func (c *client) request(verb string, of resource, namespace, name string, query url.Values) *rest.Request {
	path := []string{of.path, "namespaces", namespace, of.name}
	if name != "" {
		path = append(path, name)
	}
	r := c.rest.Verb(verb).AbsPath(path...).MaxRetries(0)
	for key, values := range query {
		for _, value := range values {
			r.Param(key, value)
		}
	}
	return r
}

// do makes a request, and decodes the answer into out, unless that is nil.
func (c *client) do(ctx context.Context, r *rest.Request, in, out any) error {
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return err
		}
		r.Body(body)
	}
	result := r.Do(silent(ctx))
	if err := result.Error(); err != nil || out == nil {
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

func (c *client) get(ctx context.Context, of resource, namespace, name string, query url.Values, out any) error {
	return c.do(ctx, c.request(http.MethodGet, of, namespace, name, query), nil, out)
}

func (c *client) create(ctx context.Context, of resource, namespace string, in, out any) error {
	r := c.request(http.MethodPost, of, namespace, "", nil)
	return c.do(ctx, r.SetHeader("Content-Type", runtime.ContentTypeJSON), in, out)
}

// patch merges into an object. What the patch does not name stays.
func (c *client) patch(ctx context.Context, of resource, namespace, name string, in, out any) error {
	r := c.request(http.MethodPatch, of, namespace, name, nil)
	return c.do(ctx, r.SetHeader("Content-Type", string(types.MergePatchType)), in, out)
}

// remove deletes an object, only at the given resourceVersion if that is not empty.
func (c *client) remove(ctx context.Context, of resource, namespace, name, rev string) error {
	var options metav1.DeleteOptions
	options.APIVersion, options.Kind = "v1", "DeleteOptions"
	if rev != "" {
		options.Preconditions = &metav1.Preconditions{ResourceVersion: &rev}
	}
	r := c.request(http.MethodDelete, of, namespace, name, nil)
	return c.do(ctx, r.SetHeader("Content-Type", runtime.ContentTypeJSON), options, nil)
}

// stream begins a watch.
func (c *client) stream(ctx context.Context, of resource, namespace string, query url.Values) (io.ReadCloser, error) {
	return c.request(http.MethodGet, of, namespace, "", query).Stream(silent(ctx))
}
