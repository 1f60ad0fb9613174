package gatewaytest

import (
	"strings"
	"time"
)

// RunUpstreamCheck runs the checks of RunUpstream that begin so, by era/name, and is less patient: whoever breaks one thing on purpose
// need not wait for all the others.
func RunUpstreamCheck(t T, c UpstreamCase, check string) {
	runUpstream(t, c, 2*time.Second, func(name string) bool { return strings.HasPrefix(name, check) })
}
