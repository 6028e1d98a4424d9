package tableside.state.http;

import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/**
 * The PEM files for TLS: the authorities that verify the service, and the client's certificate and key.
 *
 * <p>The files are read on the machine that sends the request. The environment there supplies those that the settings
 * omit.
 */
record TlsFiles(String caFile, String certificateFile, String keyFile) {
  private static final Pattern PEM_BLOCK =
      Pattern.compile("-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\\s]*)-----END \\1-----");
  private static final char[] NO_PASSWORD = {};
  private static final Pattern ALERT = Pattern.compile("Received fatal alert: (\\w+)");

  /**
   * The alerts with which a service permanently rejects this client. It sends all of them before it reads a request.
   */
  private static final Set<String> PERMANENT_ALERTS =
      Set.of(
          "access_denied", "bad_certificate", "certificate_expired", "certificate_required", "certificate_revoked",
          "certificate_unknown", "handshake_failure", "insufficient_security", "protocol_version", "unknown_ca",
          "unsupported_certificate");

  /** The files to use, or null if the URL is not `https://`. */
  static TlsFiles of(Settings settings, Map<String, String> environment) {
    if (!settings.url().startsWith("https://")) return null;
    String certificateFile = settings.certificateFile();
    return new TlsFiles(
        orElse(settings.caFile(), environment.get("TABLESIDE_CA_FILE")),
        orElse(certificateFile, environment.get("TABLESIDE_CERTIFICATE_FILE")),
        // A key belongs to its certificate: take both from the settings, or both from the environment.
        certificateFile == null ? orElse(null, environment.get("TABLESIDE_KEY_FILE")) : settings.keyFile());
  }

  private static String orElse(String given, String fallback) {
    if (given != null) return given;
    return fallback == null || fallback.isEmpty() ? null : fallback;
  }

  /** Creates the TLS context from the current contents of the files. */
  SSLContext context() throws AttemptException {
    try {
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(certificateFile == null ? null : keyManagers(), caFile == null ? null : trustManagers(), null);
      return context;
    } catch (GeneralSecurityException | IOException error) {
      throw unusable("certificates cannot be used: " + error.getMessage());
    }
  }

  /** The modification time, size and identity of each file; they differ after a file is replaced. */
  List<String> fileStates() {
    return Stream.of(caFile, certificateFile, keyFile).filter(Objects::nonNull).map(TlsFiles::fileState).toList();
  }

  /** The reason why TLS permanently rejected a connection; null if a retry may help or TLS was not the cause. */
  String rejection(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof CertificateException || cause instanceof SSLPeerUnverifiedException) {
        return "the service's certificate is refused: " + deepest(cause).getMessage() + " (" + describeTrust() + ")";
      }
      String rejection = cause instanceof SSLException ? rejection(String.valueOf(cause.getMessage())) : null;
      if (rejection != null && !(cause.getCause() instanceof CertificateException)) return rejection;
    }
    return null;
  }

  /**
   * A hint for connections that the service closes without an alert: not every server reports a rejected certificate.
   */
  String ambiguousCloseHint() {
    return "a service that requires client certificates may close connections this way: " + describeCertificate();
  }

  private static Throwable deepest(Throwable error) {
    Throwable found = error;
    while (found.getCause() != null && found.getCause().getMessage() != null) found = found.getCause();
    return found;
  }

  private String rejection(String message) {
    if (message.toLowerCase(Locale.ROOT).contains("unrecognized ssl message")) {
      return "the service answers at this address without TLS";
    }
    Matcher alert = ALERT.matcher(message);
    if (!alert.find() || !PERMANENT_ALERTS.contains(alert.group(1))) return null;
    String reason = alert.group(1).replace('_', ' ');
    return "the service refuses the connection: " + reason + " (" + describeCertificate() + ")";
  }

  private String describeTrust() {
    return caFile == null ? "no ca_file is given: the default authorities are trusted" : "ca_file is " + caFile;
  }

  private String describeCertificate() {
    return certificateFile == null ? "no certificate_file is given" : "certificate_file is " + certificateFile;
  }

  private TrustManager[] trustManagers() throws AttemptException, GeneralSecurityException, IOException {
    KeyStore authorities = KeyStore.getInstance("PKCS12");
    authorities.load(null, null);
    int number = 0;
    for (Certificate authority : certificates("ca_file", caFile)) {
      authorities.setCertificateEntry("authority-" + number++, authority);
    }
    TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(authorities);
    return factory.getTrustManagers();
  }

  private KeyManager[] keyManagers() throws AttemptException, GeneralSecurityException, IOException {
    Certificate[] chain = certificates("certificate_file", certificateFile).toArray(Certificate[]::new);
    KeyStore keyStore = KeyStore.getInstance("PKCS12");
    keyStore.load(null, null);
    keyStore.setKeyEntry("own", key(chain[0]), NO_PASSWORD, chain);
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(keyStore, NO_PASSWORD);
    return factory.getKeyManagers();
  }

  private static List<Certificate> certificates(String setting, String file) throws AttemptException {
    List<Certificate> found = new ArrayList<>();
    Matcher block = PEM_BLOCK.matcher(text(setting, file));
    try {
      CertificateFactory factory = CertificateFactory.getInstance("X.509");
      while (block.find()) {
        if (block.group(1).endsWith("CERTIFICATE")) {
          found.add(factory.generateCertificate(new ByteArrayInputStream(bytes(block.group(2)))));
        }
      }
    } catch (CertificateException | IllegalArgumentException error) {
      throw unusable("the " + setting + " " + file + " cannot be used: it contains an invalid certificate");
    }
    if (found.isEmpty()) throw unusable("the " + setting + " " + file + " cannot be used: it contains no certificate");
    return found;
  }

  private PrivateKey key(Certificate certificate) throws AttemptException {
    String setting = keyFile == null ? "certificate_file" : "key_file";
    String file = keyFile == null ? certificateFile : keyFile;
    String messagePrefix = "the " + setting + " " + file + " cannot be used: ";
    Matcher block = PEM_BLOCK.matcher(text(setting, file));
    while (block.find()) {
      switch (block.group(1)) {
        case "PRIVATE KEY" -> {
          return matchingKey(certificate, block.group(2), messagePrefix);
        }
        case "ENCRYPTED PRIVATE KEY" -> throw unusable(messagePrefix + "a key with a passphrase is not supported");
        case "RSA PRIVATE KEY", "EC PRIVATE KEY" ->
            throw unusable(messagePrefix + "the key is not PKCS#8; convert it with `openssl pkcs8 -topk8 -nocrypt`");
        default -> {}
      }
    }
    throw unusable(messagePrefix + "it contains no private key");
  }

  private static PrivateKey matchingKey(Certificate certificate, String base64, String messagePrefix)
      throws AttemptException {
    String algorithm = certificate.getPublicKey().getAlgorithm();
    try {
      PrivateKey key = KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(bytes(base64)));
      Signature signature = Signature.getInstance(signatureOf(algorithm));
      signature.initSign(key);
      byte[] signed = signature.sign();
      signature.initVerify(certificate.getPublicKey());
      if (signature.verify(signed)) return key;
    } catch (InvalidKeySpecException | IllegalArgumentException error) {
      // The key has a different algorithm or is not a key.
    } catch (GeneralSecurityException error) {
      throw unusable(messagePrefix + "a key for " + algorithm + " is not supported");
    }
    throw unusable(messagePrefix + "the key does not match the certificate");
  }

  private static String signatureOf(String algorithm) {
    return switch (algorithm) {
      case "RSA" -> "SHA256withRSA";
      case "EC" -> "SHA256withECDSA";
      default -> algorithm;
    };
  }

  private static byte[] bytes(String base64) {
    return Base64.getMimeDecoder().decode(base64);
  }

  /** Reads a file. The error message names the file, unlike the library's own errors. */
  private static String text(String setting, String file) throws AttemptException {
    try {
      return Files.readString(Path.of(file), StandardCharsets.ISO_8859_1);
    } catch (NoSuchFileException | FileNotFoundException | InvalidPathException error) {
      throw unusable("the " + setting + " " + file + " cannot be read: no such file");
    } catch (IOException error) {
      throw unusable("the " + setting + " " + file + " cannot be read: " + error.getClass().getSimpleName());
    }
  }

  private static String fileState(String file) {
    try {
      BasicFileAttributes found = Files.readAttributes(Path.of(file), BasicFileAttributes.class);
      return found.lastModifiedTime() + " " + found.size() + " " + found.fileKey();
    } catch (IOException | InvalidPathException error) {
      return "none";
    }
  }

  private static AttemptException unusable(String detail) {
    return AttemptException.permanent("tls_file_unusable", 0, detail);
  }
}
