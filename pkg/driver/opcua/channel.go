package opcua

import (
	"context"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// bufferSize of both directions; 64 KiB each would cost a probe of 500 servers 130 MB more.
	bufferSize = 8192
	// minBufferSize is the least that a peer may offer (OPC 10000-6, 7.1.2.4).
	minBufferSize = 8192
	// maxChunk bounds one received chunk: some servers ignore what they were offered.
	maxChunk = 1 << 16
	// maxMessage bounds a whole reply, and is offered to the server. What does not fit is asked for in smaller parts.
	maxMessage = 4 << 20
	// maxUnasked bounds what a server sends, in bytes, between two replies that somebody waits for. Replies that come too
	// late are of that kind, and no more than a few; a server that talks on and on would take a core of the probe.
	maxUnasked = 2 * maxMessage
	// unaskedChunk is what a chunk counts besides its size.
	unaskedChunk = 1 << 10
	// channelLifetime of a security token, and the share of it after which a new one is asked for.
	channelLifetime = time.Hour
	renewAfter      = 0.75

	headerSize   = 12
	sequenceSize = 8
)

// Dial opens a connection; network is always "tcp".
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

var errClosed = fmt.Errorf("the connection was closed: %w", net.ErrClosed)

// security is how a channel is secured. With policy None everything else is empty.
type security struct {
	policy SecurityPolicy
	mode   SecurityMode
	// remote is the server's certificate, whose owner is the only one that can read and answer.
	remote *x509.Certificate
	local  *Application
}

// asymmetric is the algorithm for the channel's opening.
func (s security) asymmetric() (*uapolicy.EncryptionAlgorithm, error) {
	return asymmetric(s.policy, s.localKey(), s.remote)
}

func (s security) localKey() *rsa.PrivateKey {
	if s.local == nil {
		return nil
	}
	return s.local.key
}

// asymmetric is the policy's algorithm between a private key and a certificate; both must be RSA.
func asymmetric(policy SecurityPolicy, local *rsa.PrivateKey, remote *x509.Certificate) (*uapolicy.EncryptionAlgorithm, error) {
	if policy == PolicyNone {
		return uapolicy.Asymmetric(policy.uri(), nil, nil)
	}
	key, ok := remote.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, &driver.Error{Reason: driver.ReasonSecurityModeRejected, Err: errors.New("the server's certificate has no RSA key")}
	}
	algorithm, err := uapolicy.Asymmetric(policy.uri(), local, key)
	if err != nil {
		return nil, &driver.Error{Reason: driver.ReasonSecurityModeRejected, Err: err}
	}
	return algorithm, nil
}

// token is one security token of the channel with its keys.
type token struct {
	id        uint32
	algorithm *uapolicy.EncryptionAlgorithm
	renewAt   time.Time
}

// channel is a secure channel on a connection of its own. Requests may be sent by many at once; replies find them by
// the request's id, and those that nobody waits for any more are dropped.
type channel struct {
	conn     net.Conn
	security security
	lifetime time.Duration

	// What the server takes.
	chunkSize   int
	messageSize int

	writing  sync.Mutex // guards what is sent: the order of sequence numbers is that of the wire
	sequence uint32
	opening  *uapolicy.EncryptionAlgorithm
	renewing chan struct{} // holds one element while somebody asks for a new token

	// handshake is the raw algorithm of OpenSecureChannel replies; only the reader uses it after the start.
	handshake *uapolicy.EncryptionAlgorithm

	id        atomic.Uint32
	requestID atomic.Uint32

	mu       sync.Mutex
	current  *token
	previous *token
	pending  map[uint32]chan reply
	parts    map[uint32][]byte
	held     int // bytes in parts
	unasked  int // bytes that nobody waited for, since the last reply
	received int // bytes in all replies
	err      error
	// silentSince is when the first request was sent that nothing has come back since.
	silentSince time.Time

	done chan struct{} // closed when the reader has ended
}

// reply is a whole message, or what came instead.
type reply struct {
	body []byte
	err  error
}

// openChannel dials and opens a secure channel. Hello must be answered within timeout, the rest within ctx.
func openChannel(ctx context.Context, dial Dial, hostPort, endpoint string, s security, lifetime, timeout time.Duration) (*channel, error) {
	helloCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(helloCtx, "tcp", hostPort)
	if err != nil {
		return nil, linkError(err, hostPort, "")
	}
	c := &channel{
		conn:     conn,
		security: s,
		lifetime: lifetime,
		renewing: make(chan struct{}, 1),
		pending:  map[uint32]chan reply{},
		parts:    map[uint32][]byte{},
		done:     make(chan struct{}),
	}
	if err := c.hello(helloCtx, endpoint); err != nil {
		_ = conn.Close()
		return nil, atStep(err, hostPort, "hello")
	}
	if c.opening, err = s.asymmetric(); err == nil {
		c.handshake, err = s.asymmetric()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go c.read()
	if err := c.open(ctx, false, 3*timeout); err != nil {
		c.abort(errClosed)
		return nil, atStep(err, hostPort, "opening the secure channel")
	}
	return c, nil
}

// hello exchanges Hello and Acknowledge.
func (c *channel) hello(ctx context.Context, endpoint string) error {
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	body := make([]byte, 8, 64+len(endpoint))
	copy(body, "HELF")
	for _, v := range [...]uint32{0, bufferSize, bufferSize, maxMessage, 0, uint32(len(endpoint))} {
		body = binary.LittleEndian.AppendUint32(body, v)
	}
	body = append(body, endpoint...)
	binary.LittleEndian.PutUint32(body[4:], uint32(len(body)))
	if _, err := c.conn.Write(body); err != nil {
		return err
	}
	kind, _, message, err := readChunk(c.conn)
	if err != nil {
		return err
	}
	d := decoder{b: message}
	switch kind {
	case "ACK":
		_, receive, _, size, _ := d.u32(), d.u32(), d.u32(), d.u32(), d.u32()
		if d.err != nil || receive < minBufferSize {
			return fmt.Errorf("%w: Acknowledge", errMalformed)
		}
		c.chunkSize = int(min(receive, bufferSize))
		c.messageSize = math.MaxInt32
		if size != 0 {
			c.messageSize = int(min(size, math.MaxInt32))
		}
		return c.conn.SetDeadline(time.Time{})
	case "ERR":
		return d.serverError()
	default:
		return fmt.Errorf("%w: no Acknowledge", errMalformed)
	}
}

// serverError is what an Error message carries.
func (d *decoder) serverError() error {
	status := d.status()
	if d.err != nil {
		return d.err
	}
	return status
}

// readChunk reads one chunk; message is what follows the first 8 bytes.
func readChunk(r io.Reader) (kind string, final byte, message []byte, err error) {
	var header [8]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return "", 0, nil, err
	}
	size := binary.LittleEndian.Uint32(header[4:])
	kind = string(header[:3])
	switch kind {
	case "MSG", "OPN", "CLO", "ERR", "ACK":
	default:
		return "", 0, nil, fmt.Errorf("%w: the peer does not speak OPC UA", errMalformed)
	}
	if size < 8 || size > maxChunk {
		return "", 0, nil, fmt.Errorf("%w: a chunk of %d bytes", errMalformed, size)
	}
	message = make([]byte, size-8)
	if _, err := io.ReadFull(r, message); err != nil {
		return "", 0, nil, err
	}
	return kind, header[3], message, nil
}

// read is the goroutine that receives; it ends with the connection.
func (c *channel) read() {
	defer close(c.done)
	defer func() {
		// The cryptography meets bytes that nobody foresaw.
		if p := recover(); p != nil {
			c.fail(fmt.Errorf("%w: %v", errMalformed, p))
		}
	}()
	var sequence uint32
	for {
		kind, final, message, err := readChunk(c.conn)
		if err == nil {
			err = c.receive(kind, final, message, &sequence)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// receive takes one chunk in.
func (c *channel) receive(kind string, final byte, message []byte, last *uint32) error {
	d := decoder{b: message}
	var plain []byte
	var err error
	switch kind {
	case "ERR":
		return d.serverError()
	case "CLO":
		return io.EOF
	case "OPN":
		plain, err = c.openOPN(message)
	case "MSG":
		plain, err = c.openMSG(message, final)
	default:
		err = fmt.Errorf("%w: unexpected %s", errMalformed, kind)
	}
	if err != nil {
		return err
	}
	d = decoder{b: plain}
	sequence, id := d.u32(), d.u32()
	if d.err != nil {
		return d.err
	}
	if c.security.policy != PolicyNone && *last != 0 && sequence <= *last && *last < math.MaxUint32-1024 {
		// What was sent before is sent again: signed by the server, and not meant for this request.
		return fmt.Errorf("%w: sequence number %d after %d", errMalformed, sequence, *last)
	}
	*last = sequence

	c.mu.Lock()
	defer c.mu.Unlock()
	c.silentSince = time.Time{}
	waiting := c.pending[id]
	if waiting == nil {
		// Too late, or never asked for.
		if c.unasked += len(d.b) + unaskedChunk; c.unasked > maxUnasked {
			return fmt.Errorf("%w: more than %d MiB that nobody asked for", errMalformed, maxUnasked>>20)
		}
		return nil
	}
	c.received += len(d.b)
	switch final {
	case 'C':
		// An empty part costs as much work as any other.
		if c.unasked += unaskedChunk; c.unasked > maxUnasked {
			return fmt.Errorf("%w: too many parts", errMalformed)
		}
		c.held += len(d.b)
		if c.held > maxMessage {
			return fmt.Errorf("%w: more than %d bytes", errMalformed, maxMessage)
		}
		c.parts[id] = append(c.parts[id], d.b...)
		return nil
	case 'A':
		c.deliver(id, reply{err: d.serverError()})
	case 'F':
		body := d.b
		if parts := c.parts[id]; parts != nil {
			body = append(parts, body...)
		}
		c.deliver(id, reply{body: body})
	default:
		return fmt.Errorf("%w: chunk type %q", errMalformed, final)
	}
	return nil
}

// deliver ends a request; mu is held.
func (c *channel) deliver(id uint32, r reply) {
	if waiting := c.pending[id]; waiting != nil {
		waiting <- r
		c.unasked = 0
	}
	c.forget(id)
}

// forget drops what is kept for a request; mu is held.
func (c *channel) forget(id uint32) {
	delete(c.pending, id)
	c.held -= len(c.parts[id])
	delete(c.parts, id)
}

// openOPN verifies and decrypts a chunk of the channel's opening.
func (c *channel) openOPN(message []byte) ([]byte, error) {
	d := decoder{b: message}
	d.u32()
	policy, certificate, _ := d.string(), d.bytes(), d.bytes()
	if d.err != nil || policy != c.security.policy.uri() {
		return nil, fmt.Errorf("%w: opened with policy %q", errMalformed, policy)
	}
	if c.security.policy == PolicyNone {
		return d.b, nil
	}
	if leaf := leafOf(certificate); string(leaf) != string(c.security.remote.Raw) {
		return nil, untrusted(leaf, "the server answers with another certificate than it told")
	}
	header := 8 + len(message) - len(d.b)
	plain, err := c.handshake.Decrypt(d.b)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot be decrypted", errMalformed)
	}
	signed := make([]byte, 0, header+len(plain))
	signed = appendHeader(signed, "OPN", 'F', 8+len(message))
	signed = append(append(signed, message[:header-8]...), plain...)
	return verified(signed, header, c.handshake, true, c.security.local.key.Size() > 256)
}

// openMSG verifies and decrypts a chunk of a message.
func (c *channel) openMSG(message []byte, final byte) ([]byte, error) {
	d := decoder{b: message}
	channelID, tokenID := d.u32(), d.u32()
	if d.err != nil || channelID != c.id.Load() {
		return nil, fmt.Errorf("%w: a message of channel %d", errMalformed, channelID)
	}
	c.mu.Lock()
	used := c.current
	if c.previous != nil && c.previous.id == tokenID {
		used = c.previous
	}
	c.mu.Unlock()
	if used == nil || used.id != tokenID {
		return nil, fmt.Errorf("%w: a message with unknown token %d", errMalformed, tokenID)
	}
	if c.security.mode == ModeNone {
		return d.b, nil
	}
	plain := d.b
	encrypted := c.security.mode == ModeSignAndEncrypt
	if encrypted {
		var err error
		if plain, err = used.algorithm.Decrypt(d.b); err != nil {
			return nil, fmt.Errorf("%w: cannot be decrypted", errMalformed)
		}
	}
	const header = headerSize + 4
	signed := make([]byte, 0, header+len(plain))
	signed = appendHeader(signed, "MSG", final, 8+len(message))
	signed = append(append(signed, message[:header-8]...), plain...)
	return verified(signed, header, used.algorithm, encrypted, false)
}

func appendHeader(b []byte, kind string, final byte, size int) []byte {
	b = append(b, kind...)
	b = append(b, final)
	return binary.LittleEndian.AppendUint32(b, uint32(size))
}

// verified is what lies between the header and the padding of a chunk whose signature is right.
func verified(signed []byte, header int, algorithm *uapolicy.EncryptionAlgorithm, padded, longPadding bool) ([]byte, error) {
	end := len(signed) - algorithm.RemoteSignatureLength()
	if end < header {
		return nil, fmt.Errorf("%w: shorter than its signature", errMalformed)
	}
	if err := algorithm.VerifySignature(signed[:end], signed[end:]); err != nil {
		return nil, fmt.Errorf("%w: its signature is wrong", errMalformed)
	}
	body := signed[header:end]
	if padded {
		padding := 1
		if longPadding && len(body) >= 2 {
			padding = int(body[len(body)-1])<<8 + int(body[len(body)-2]) + 2
		} else if len(body) >= 1 {
			padding = int(body[len(body)-1]) + 1
		}
		if padding > len(body) {
			return nil, fmt.Errorf("%w: its padding is longer than itself", errMalformed)
		}
		body = body[:len(body)-padding]
	}
	return body, nil
}

// fail ends the channel and everybody who waits on it.
func (c *channel) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	_ = c.conn.Close()
	for id := range c.pending {
		c.deliver(id, reply{err: c.err})
	}
}

// failure is why the channel ended, or nil while it is open.
func (c *channel) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// taken is how many bytes all replies had together.
func (c *channel) taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

// silentFor is how long requests have gone unanswered.
func (c *channel) silentFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silentSince.IsZero() {
		return 0
	}
	return time.Since(c.silentSince)
}

// abort closes the connection and waits for the reader.
func (c *channel) abort(err error) {
	c.fail(err)
	<-c.done
}

// close tells the server that the channel ends, and closes it.
func (c *channel) close() {
	if c.failure() == nil {
		if body, err := encode(&ua.CloseSecureChannelRequest{}, nil, 0, 0); err == nil {
			_ = c.send("CLO", c.requestID.Add(1), body, time.Now().Add(100*time.Millisecond))
		}
	}
	c.abort(errClosed)
}

// encode is a request with its type and header.
func encode(request ua.Request, authentication *ua.NodeID, handle uint32, timeout time.Duration) ([]byte, error) {
	if authentication == nil {
		authentication = ua.NewTwoByteNodeID(0)
	}
	header := &ua.RequestHeader{
		AuthenticationToken: authentication,
		Timestamp:           time.Now(),
		RequestHandle:       handle,
		TimeoutHint:         uint32(timeout / time.Millisecond),
	}
	if quick, ok := request.(quickRequest); ok {
		encoded, err := ua.Encode(header)
		if err != nil {
			return nil, err
		}
		return quick.appendBody(append(binary.LittleEndian.AppendUint16([]byte{1, 0}, quick.encoding()), encoded...)), nil
	}
	request.SetHeader(header)
	id, err := ua.NewFourByteNodeID(0, ua.ServiceTypeID(request)).Encode()
	if err != nil {
		return nil, err
	}
	body, err := ua.Encode(request)
	return append(id, body...), err
}

// call sends a request and returns its reply, read up to the end of its header. The error is a ua.StatusCode when the
// server answered it, and else the link's.
func (c *channel) call(ctx context.Context, request ua.Request, want uint32, authentication *ua.NodeID, timeout time.Duration) (*decoder, error) {
	if err := c.renew(ctx, timeout); err != nil {
		return nil, err
	}
	return c.exchange(ctx, "MSG", request, want, authentication, timeout)
}

func (c *channel) exchange(ctx context.Context, kind string, request ua.Request, want uint32, authentication *ua.NodeID, timeout time.Duration) (*decoder, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()

	id := c.requestID.Add(1)
	body, err := encode(request, authentication, id, timeout)
	if err != nil {
		return nil, &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: err}
	}
	if len(body) > c.messageSize {
		return nil, ua.StatusBadRequestTooLarge
	}
	waiting := make(chan reply, 1)
	c.mu.Lock()
	if err := c.err; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	c.pending[id] = waiting
	if c.silentSince.IsZero() {
		c.silentSince = time.Now()
	}
	c.mu.Unlock()

	if err := c.send(kind, id, body, deadline); err != nil {
		// Half a message may be on the wire: nothing after it would be understood.
		c.fail(err)
		return nil, err
	}
	select {
	case r := <-waiting:
		if r.err != nil {
			return nil, r.err
		}
		d := &decoder{b: r.body}
		if err := d.response(want); err != nil {
			if !isStatus(err) {
				// The encryption and the framing were right, and the content is not: nothing that follows can be trusted more.
				c.fail(err)
			}
			return nil, err
		}
		return d, nil
	case <-ctx.Done():
		c.mu.Lock()
		c.forget(id)
		c.mu.Unlock()
		return nil, ctx.Err()
	}
}

// send writes a message in as many chunks as it takes.
func (c *channel) send(kind string, id uint32, body []byte, deadline time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if kind == "OPN" {
		chunk, err := c.sealOPN(id, body)
		if err != nil {
			return err
		}
		_, err = c.conn.Write(chunk)
		return err
	}
	c.mu.Lock()
	used := c.current
	c.mu.Unlock()
	if used == nil {
		return errClosed
	}
	room := c.room(used.algorithm)
	for {
		part, final := body, byte('F')
		if len(part) > room {
			part, final = body[:room], 'C'
		}
		chunk, err := c.sealMSG(kind, final, used, id, part)
		if err != nil {
			return err
		}
		if _, err := c.conn.Write(chunk); err != nil {
			return err
		}
		if body = body[len(part):]; final == 'F' {
			return nil
		}
	}
}

// room is how much of a message goes into one chunk.
func (c *channel) room(algorithm *uapolicy.EncryptionAlgorithm) int {
	left := c.chunkSize - headerSize - 4
	switch c.security.mode {
	case ModeSign:
		return left - algorithm.SignatureLength() - sequenceSize
	case ModeSignAndEncrypt:
		block := algorithm.BlockSize()
		return left/block*block - algorithm.SignatureLength() - 1 - sequenceSize
	default:
		return left - sequenceSize
	}
}

// nextSequence is the next sequence number; writing is held.
func (c *channel) nextSequence() uint32 {
	if c.sequence++; c.sequence > math.MaxUint32-1024 {
		c.sequence = 1
	}
	return c.sequence
}

// sealMSG is one signed and encrypted chunk.
func (c *channel) sealMSG(kind string, final byte, used *token, id uint32, body []byte) ([]byte, error) {
	const header = headerSize + 4
	plain := make([]byte, 0, sequenceSize+len(body)+64)
	plain = binary.LittleEndian.AppendUint32(plain, c.nextSequence())
	plain = binary.LittleEndian.AppendUint32(plain, id)
	plain = append(plain, body...)

	signature := 0
	if c.security.mode != ModeNone {
		signature = used.algorithm.SignatureLength()
	}
	if c.security.mode == ModeSignAndEncrypt {
		plain = pad(plain, signature, used.algorithm.BlockSize(), false)
	}
	chunk := make([]byte, 0, header+len(plain)+signature)
	chunk = appendHeader(chunk, kind, final, header+len(plain)+signature)
	chunk = binary.LittleEndian.AppendUint32(chunk, c.id.Load())
	chunk = binary.LittleEndian.AppendUint32(chunk, used.id)
	chunk = append(chunk, plain...)
	return c.seal(chunk, header, used.algorithm, c.security.mode != ModeNone, c.security.mode == ModeSignAndEncrypt)
}

// sealOPN is the one chunk that opens the channel or renews its token.
func (c *channel) sealOPN(id uint32, body []byte) ([]byte, error) {
	secured := c.security.policy != PolicyNone
	var certificate, thumbprint []byte
	if secured {
		certificate = c.security.local.certificate.Raw
		sum := sha1.Sum(c.security.remote.Raw)
		thumbprint = sum[:]
	}
	var fixed []byte
	fixed = binary.LittleEndian.AppendUint32(fixed, c.id.Load())
	for _, member := range [][]byte{[]byte(c.security.policy.uri()), certificate, thumbprint} {
		if member == nil {
			fixed = binary.LittleEndian.AppendUint32(fixed, math.MaxUint32)
			continue
		}
		fixed = binary.LittleEndian.AppendUint32(fixed, uint32(len(member)))
		fixed = append(fixed, member...)
	}
	var plain []byte
	plain = binary.LittleEndian.AppendUint32(plain, c.nextSequence())
	plain = binary.LittleEndian.AppendUint32(plain, id)
	plain = append(plain, body...)

	header, size := 8+len(fixed), 8+len(fixed)+len(plain)
	if secured {
		block := c.opening.PlaintextBlockSize()
		plain = pad(plain, c.opening.SignatureLength(), block, c.opening.BlockSize() > 256)
		size = header + (len(plain)+c.opening.SignatureLength())/block*c.opening.BlockSize()
	}
	chunk := appendHeader(nil, "OPN", 'F', size)
	chunk = append(append(chunk, fixed...), plain...)
	return c.seal(chunk, header, c.opening, secured, secured)
}

// seal signs a chunk and encrypts what follows its header.
func (c *channel) seal(chunk []byte, header int, algorithm *uapolicy.EncryptionAlgorithm, sign, encrypt bool) ([]byte, error) {
	if sign {
		signature, err := algorithm.Signature(chunk)
		if err != nil {
			return nil, err
		}
		chunk = append(chunk, signature...)
	}
	if encrypt {
		sealed, err := algorithm.Encrypt(chunk[header:])
		if err != nil {
			return nil, err
		}
		chunk = append(chunk[:header], sealed...)
	}
	return chunk, nil
}

// pad appends the padding that makes plain and its signature whole blocks (OPC 10000-6, 6.7.2.5).
func pad(plain []byte, signature, block int, long bool) []byte {
	sizes := 1
	if long {
		sizes = 2
	}
	n := (block - (len(plain)+sizes+signature)%block) % block
	for range n + 1 {
		plain = append(plain, byte(n))
	}
	if long {
		plain = append(plain, byte(n>>8))
	}
	return plain
}

// open asks for a security token, the first or another.
func (c *channel) open(ctx context.Context, renew bool, timeout time.Duration) error {
	kind := ua.SecurityTokenRequestTypeIssue
	if renew {
		kind = ua.SecurityTokenRequestTypeRenew
	}
	var nonce []byte
	if c.security.policy != PolicyNone {
		var err error
		if nonce, err = c.opening.MakeNonce(); err != nil {
			return err
		}
	}
	d, err := c.exchange(ctx, "OPN", &ua.OpenSecureChannelRequest{
		RequestType:       kind,
		SecurityMode:      ua.MessageSecurityModeFromString(string(c.security.mode)),
		ClientNonce:       nonce,
		RequestedLifetime: uint32(c.lifetime / time.Millisecond),
	}, openSecureChannelResponse, nil, timeout)
	if err != nil {
		return err
	}
	d.u32()
	channelID, tokenID := d.u32(), d.u32()
	d.time()
	lifetime := time.Duration(d.u32()) * time.Millisecond
	remoteNonce := d.bytes()
	if d.err != nil || renew && channelID != c.id.Load() {
		c.fail(errMalformed)
		return errMalformed
	}
	if lifetime <= 0 || lifetime > c.lifetime {
		lifetime = c.lifetime
	}
	next := &token{id: tokenID, renewAt: time.Now().Add(time.Duration(float64(lifetime) * renewAfter))}
	if c.security.policy != PolicyNone {
		if len(remoteNonce) < len(nonce) {
			return fmt.Errorf("%w: a nonce of %d bytes", errMalformed, len(remoteNonce))
		}
		if next.algorithm, err = uapolicy.Symmetric(c.security.policy.uri(), nonce, remoteNonce); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id.Store(channelID)
	c.previous, c.current = c.current, next
	return nil
}

// renew asks for a new token when the old one ends soon. One asks; the others go on with the old one, which holds for
// another quarter of its lifetime.
func (c *channel) renew(ctx context.Context, timeout time.Duration) error {
	c.mu.Lock()
	due := c.current != nil && time.Now().After(c.current.renewAt)
	c.mu.Unlock()
	if !due {
		return nil
	}
	select {
	case c.renewing <- struct{}{}:
		defer func() { <-c.renewing }()
	default:
		return nil
	}
	return c.open(ctx, true, timeout)
}

func isStatus(err error) bool {
	_, ok := errors.AsType[ua.StatusCode](err)
	return ok
}

// leafOf is the first certificate of what may be a chain.
func leafOf(chain []byte) []byte {
	if len(chain) < 4 || chain[0] != 0x30 || chain[1] != 0x82 {
		return chain
	}
	if size := 4 + int(chain[2])<<8 + int(chain[3]); size <= len(chain) {
		return chain[:size]
	}
	return chain
}
