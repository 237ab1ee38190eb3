package object

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// CheckRequestName refuses a request to a subresource whose body names another object than its path: RBAC was asked
// about that of the path.
func CheckRequestName(path, body string) error {
	if body != "" && body != path {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name is %q, and the request is to %q: leave it out, or name the same", body, path))
	}
	return nil
}
