package mcphttp_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"aduana/adapters/mcphttp"
	"aduana/gateway"
	"aduana/gateway/gatewaytest"
	"aduana/internal/mcp"
	"aduana/policy"
	"aduana/test/upstream"
)

func TestUpstreamContract(t *testing.T) {
	deliver := func(kind policy.DeliverKind, name string) policy.Deliver {
		return policy.Deliver{Kind: kind, Name: name, Declared: true}
	}
	gatewaytest.RunUpstream(t, gatewaytest.UpstreamCase{Start: stage, Deliveries: []gatewaytest.Delivery{
		{Deliver: deliver(policy.DeliverBearer, ""), Place: "Authorization", Prefix: "Bearer "},
		{Deliver: deliver(policy.DeliverHeader, "X-Api-Key"), Place: "X-Api-Key"},
	}})
}

// stage starts a scripted server that dies by losing its connections and its memory, and listens on.
func stage(s gatewaytest.Script) (gatewaytest.Stage, error) {
	cfg := upstream.Config{Eras: upstream.LegacyOnly, Methods: map[string]upstream.Handler{}}
	if s.Era == mcp.Modern {
		cfg.Eras = upstream.ModernOnly
	}
	for method, h := range s.Methods {
		cfg.Methods[method] = func(ctx context.Context, c *upstream.Call) {
			h(ctx, &gatewaytest.ScriptCall{ScriptWire: c, Raw: c.Raw, ID: c.ID, Token: c.Token, Params: c.Params, Name: c.Name})
		}
	}
	server := upstream.New(cfg)
	front := httptest.NewServer(server)
	adapter := mcphttp.NewUpstream(mcphttp.UpstreamOptions{})
	return gatewaytest.Stage{
		Upstream: adapter,
		Target:   gateway.Target{Upstream: &policy.Upstream{ID: "up", Transport: policy.TransportHTTP, URL: front.URL + "/mcp"}},
		Heard: func() []gatewaytest.Heard {
			var all []gatewaytest.Heard
			for _, m := range server.Messages() {
				h := gatewaytest.Heard{Raw: m.Body, Conversation: m.Session, Places: map[string]string{"path": m.Path}}
				for k, v := range m.Header {
					h.Places[k] = strings.Join(v, "\n")
				}
				all = append(all, h)
			}
			return all
		},
		Announce: server.NotifyToolsChanged,
		Die: func() {
			server.ForgetSessions()
			front.CloseClientConnections()
		},
		Stop: func() {
			server.Close()
			adapter.Close()
			front.Close()
		},
	}, nil
}
