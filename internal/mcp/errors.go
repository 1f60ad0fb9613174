package mcp

import (
	"net/http"
	"strconv"

	"aduana/internal/jsonrpc"
)

// Error is a JSON-RPC error with the HTTP status that carries it. Data, when not nil, is JSON.
type Error struct {
	Code    int
	Message string
	Data    []byte
	Status  int
}

func (e *Error) Error() string { return e.Message }

// MethodNotFound answers a method that this server does not have. Modern HTTP wants 404 with a body (2026-07-28, transports);
// legacy clients take 404 for a lost session, so they get 200.
func MethodNotFound(era Era, method string) *Error {
	status := http.StatusOK
	if era == Modern {
		status = http.StatusNotFound
	}
	return &Error{Code: CodeMethodNotFound, Message: "method not found: " + clip(method), Status: status}
}

// InvalidParams answers parameters that cannot be used.
func InvalidParams(reason string) *Error {
	return &Error{Code: CodeInvalidParams, Message: reason, Status: http.StatusOK}
}

// AppendError appends a complete error response. A nil id is written as null, as JSON-RPC 2.0 section 5 wants when the request's
// own could not be read.
func AppendError(dst, id []byte, e *Error) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonrpc.AppendString(dst, e.Message)
	if e.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, `}}`...)
}

// clip bounds what of a stranger's text goes into a message.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// The HTTP statuses that carry answers. They are named here because the flow gives them without knowing HTTP.
const (
	StatusOK         = http.StatusOK
	StatusBadRequest = http.StatusBadRequest
)
