package opcuatest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
	"github.com/gopcua/opcua/uasc"
)

// session is one session; it outlives its connection until it was not used for its timeout.
type session struct {
	nonce       []byte
	certificate []byte
	active      bool
	timeout     time.Duration
	used        time.Time
}

// answer is the response to a request, a ServiceFault among them.
func (s *Server) answer(channel *uasc.SecureChannel, request ua.Request) (ua.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	header := func(status ua.StatusCode) *ua.ResponseHeader {
		return &ua.ResponseHeader{
			Timestamp: time.Now(), RequestHandle: request.Header().RequestHandle, ServiceResult: status,
			ServiceDiagnostics: &ua.DiagnosticInfo{}, StringTable: []string{}, AdditionalHeader: ua.NewExtensionObject(nil),
		}
	}
	fault := func(status ua.StatusCode) (ua.Response, error) {
		return &ua.ServiceFault{ResponseHeader: header(status)}, nil
	}
	token := request.Header().AuthenticationToken.String()
	switch r := request.(type) {
	case *ua.GetEndpointsRequest:
		return &ua.GetEndpointsResponse{ResponseHeader: header(ua.StatusOK), Endpoints: s.endpoints()}, nil
	case *ua.CreateSessionRequest:
		for token, session := range s.sessions {
			if time.Since(session.used) > session.timeout {
				delete(s.sessions, token)
			}
		}
		session := &session{
			nonce: nonce(), certificate: r.ClientCertificate, used: time.Now(),
			timeout: time.Duration(max(r.RequestedSessionTimeout, 1000)) * time.Millisecond,
		}
		signature, algorithm, err := channel.NewSessionSignature(bytes.Clone(r.ClientCertificate), r.ClientNonce)
		if err != nil {
			return fault(ua.StatusBadCertificateInvalid)
		}
		s.last++
		token := ua.NewStringNodeID(0, strconv.Itoa(int(s.last))+"-"+rand.Text())
		s.sessions[token.String()] = session
		return &ua.CreateSessionResponse{
			ResponseHeader: header(ua.StatusOK), SessionID: ua.NewNumericNodeID(1, s.last), AuthenticationToken: token,
			RevisedSessionTimeout: float64(session.timeout / time.Millisecond), ServerNonce: session.nonce, ServerCertificate: s.certificate,
			ServerEndpoints: s.endpoints(), ServerSignature: &ua.SignatureData{Signature: signature, Algorithm: algorithm},
		}, nil
	case *ua.ActivateSessionRequest:
		session := s.sessions[token]
		if session == nil {
			return fault(ua.StatusBadSessionIDInvalid)
		}
		if channel.VerifySessionSignature(session.certificate, session.nonce, r.ClientSignature.Signature) != nil {
			return fault(ua.StatusBadApplicationSignatureInvalid)
		}
		if status := s.authenticate(session, r.UserIdentityToken); status != ua.StatusOK {
			return fault(status)
		}
		session.nonce, session.active, session.used = nonce(), true, time.Now()
		return &ua.ActivateSessionResponse{ResponseHeader: header(ua.StatusOK), ServerNonce: session.nonce}, nil
	}
	session := s.sessions[token]
	if session == nil {
		return fault(ua.StatusBadSessionIDInvalid)
	}
	if !session.active {
		return fault(ua.StatusBadSessionNotActivated)
	}
	session.used = time.Now()
	switch r := request.(type) {
	case *ua.CloseSessionRequest:
		delete(s.sessions, token)
		return &ua.CloseSessionResponse{ResponseHeader: header(ua.StatusOK)}, nil
	case *ua.ReadRequest:
		if len(r.NodesToRead) > operationLimit {
			return fault(ua.StatusBadTooManyOperations)
		}
		results := make([]*ua.DataValue, len(r.NodesToRead))
		for i, asked := range r.NodesToRead {
			results[i] = bad(ua.StatusBadNodeIDUnknown)
			if n := s.nodes[asked.NodeID.String()]; n != nil {
				results[i] = n.attribute(asked.AttributeID)
			}
		}
		return &ua.ReadResponse{ResponseHeader: header(ua.StatusOK), Results: results}, nil
	case *ua.BrowseRequest:
		if len(r.NodesToBrowse) > operationLimit {
			return fault(ua.StatusBadTooManyOperations)
		}
		results := make([]*ua.BrowseResult, len(r.NodesToBrowse))
		for i, asked := range r.NodesToBrowse {
			results[i] = &ua.BrowseResult{}
			if n := s.nodes[asked.NodeID.String()]; n != nil {
				results[i] = n.browse(asked)
			} else if asked.NodeID.Namespace() > 0 {
				results[i].StatusCode = ua.StatusBadNodeIDUnknown
			}
		}
		return &ua.BrowseResponse{ResponseHeader: header(ua.StatusOK), Results: results}, nil
	case *ua.WriteRequest:
		results := make([]ua.StatusCode, len(r.NodesToWrite))
		for i, asked := range r.NodesToWrite {
			results[i] = s.write(asked)
		}
		return &ua.WriteResponse{ResponseHeader: header(ua.StatusOK), Results: results}, nil
	}
	return fault(ua.StatusBadServiceUnsupported)
}

func (s *Server) write(asked *ua.WriteValue) ua.StatusCode {
	n := s.nodes[asked.NodeID.String()]
	switch {
	case n == nil:
		return ua.StatusBadNodeIDUnknown
	case asked.AttributeID != ua.AttributeIDValue || n.access&ua.AccessLevelTypeCurrentWrite == 0:
		return ua.StatusBadNotWritable
	case asked.Value == nil || asked.Value.Value == nil || asked.Value.Value.Type() != n.value.Type():
		return ua.StatusBadTypeMismatch
	}
	n.value = asked.Value.Value
	return ua.StatusOK
}

// authenticate checks who opens a session.
func (s *Server) authenticate(session *session, token *ua.ExtensionObject) ua.StatusCode {
	var given any
	if token != nil {
		given = token.Value
	}
	user, ok := given.(*ua.UserNameIdentityToken)
	if !ok {
		if len(s.users) > 0 {
			return ua.StatusBadIdentityTokenRejected
		}
		return ua.StatusOK
	}
	password, err := s.password(session, user)
	if err != nil {
		return ua.StatusBadIdentityTokenInvalid
	}
	if want, ok := s.users[user.UserName]; !ok || want != string(password) {
		return ua.StatusBadUserAccessDenied
	}
	return ua.StatusOK
}

// password is the password of a token, which is encrypted with the session's nonce unless it came in clear text.
func (s *Server) password(session *session, user *ua.UserNameIdentityToken) ([]byte, error) {
	if user.EncryptionAlgorithm == "" {
		return user.Password, nil
	}
	certificate, err := x509.ParseCertificate(session.certificate)
	if err != nil {
		return nil, err
	}
	remote, ok := certificate.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("not RSA")
	}
	algorithm, err := uapolicy.Asymmetric(ua.SecurityPolicyURIBasic256Sha256, s.key, remote)
	if err != nil {
		return nil, err
	}
	secret, err := algorithm.Decrypt(user.Password)
	if err != nil {
		return nil, err
	}
	if len(secret) < 4+len(session.nonce) || int(binary.LittleEndian.Uint32(secret)) > len(secret)-4 {
		return nil, errors.New("too short")
	}
	secret = secret[4 : 4+binary.LittleEndian.Uint32(secret)]
	password, ok := bytes.CutSuffix(secret, session.nonce)
	if !ok {
		return nil, errors.New("not of this session")
	}
	return password, nil
}

func nonce() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

// endpoints are what the server offers.
func (s *Server) endpoints() []*ua.EndpointDescription {
	kind := ua.UserTokenTypeAnonymous
	if len(s.users) > 0 {
		kind = ua.UserTokenTypeUserName
	}
	url := "opc.tcp://" + s.address
	var all []*ua.EndpointDescription
	for _, offered := range []struct {
		policy string
		mode   ua.MessageSecurityMode
	}{
		{ua.SecurityPolicyURINone, ua.MessageSecurityModeNone},
		{ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSign},
		{ua.SecurityPolicyURIBasic256Sha256, ua.MessageSecurityModeSignAndEncrypt},
	} {
		all = append(all, &ua.EndpointDescription{
			EndpointURL: url, SecurityMode: offered.mode, SecurityPolicyURI: offered.policy, ServerCertificate: s.certificate,
			TransportProfileURI: "http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary",
			Server: &ua.ApplicationDescription{
				ApplicationURI: "urn:fieldplane:opcuatest", ApplicationName: ua.NewLocalizedText(s.name),
				ApplicationType: ua.ApplicationTypeServer, DiscoveryURLs: []string{url},
			},
			UserIdentityTokens: []*ua.UserTokenPolicy{{PolicyID: "user", TokenType: kind, SecurityPolicyURI: offered.policy}},
		})
	}
	return all
}
