package tableside.state;

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
 * How the store proves the service's name, and its own: names of PEM files, looked for where the request is made.
 *
 * <p>What the settings do not name is taken from the environment, there.
 */
record Tls(String caFile, String certificateFile, String keyFile) {
  private static final Pattern BLOCK =
      Pattern.compile("-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\\s]*)-----END \\1-----");
  private static final char[] NO_PASSWORD = {};
  private static final Pattern ALERT = Pattern.compile("Received fatal alert: (\\w+)");

  /** The alerts of a service that refuses this client for good, all of them before it reads a request. */
  private static final Set<String> FINAL =
      Set.of(
          "access_denied", "bad_certificate", "certificate_expired", "certificate_required", "certificate_revoked",
          "certificate_unknown", "handshake_failure", "insufficient_security", "protocol_version", "unknown_ca",
          "unsupported_certificate");

  /** The files to use, or null for an address whose connections are never encrypted. */
  static Tls of(Settings settings, Map<String, String> environment) {
    if (!settings.url().startsWith("https://")) return null;
    String certificateFile = settings.certificateFile();
    return new Tls(
        named(settings.caFile(), environment.get("TABLESIDE_CA_FILE")),
        named(certificateFile, environment.get("TABLESIDE_CERTIFICATE_FILE")),
        // A key belongs to its certificate: both are given, or neither.
        certificateFile == null ? named(null, environment.get("TABLESIDE_KEY_FILE")) : settings.keyFile());
  }

  private static String named(String given, String fallback) {
    if (given != null) return given;
    return fallback == null || fallback.isEmpty() ? null : fallback;
  }

  /** What connections are made with, as the files are now. */
  SSLContext context() throws Fault {
    try {
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(certificateFile == null ? null : shown(), caFile == null ? null : trusted(), null);
      return context;
    } catch (GeneralSecurityException | IOException error) {
      throw unusable("certificates cannot be used: " + error.getMessage());
    }
  }

  /** What the files look like from outside: other where they have been renewed. */
  List<String> states() {
    return Stream.of(caFile, certificateFile, keyFile).filter(Objects::nonNull).map(Tls::state).toList();
  }

  /** Why TLS's checks ended a connection; null where asking again may help, or it was not TLS. */
  String refusal(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof CertificateException || cause instanceof SSLPeerUnverifiedException) {
        return "the service's certificate is refused: " + deepest(cause).getMessage() + " (" + trust() + ")";
      }
      String refusal = cause instanceof SSLException ? refusal(String.valueOf(cause.getMessage())) : null;
      if (refusal != null && !(cause.getCause() instanceof CertificateException)) return refusal;
    }
    return null;
  }

  /** What to think of where a service ends a connection and says nothing: not all say that they refuse a client. */
  String doubt() {
    return "a service that asks for certificates may end connections so: " + certificate();
  }

  private static Throwable deepest(Throwable error) {
    Throwable found = error;
    while (found.getCause() != null && found.getCause().getMessage() != null) found = found.getCause();
    return found;
  }

  private String refusal(String message) {
    if (message.toLowerCase(Locale.ROOT).contains("unrecognized ssl message")) {
      return "the service answers at this address without TLS";
    }
    Matcher alert = ALERT.matcher(message);
    if (!alert.find() || !FINAL.contains(alert.group(1))) return null;
    return "the service refuses the connection: " + alert.group(1).replace('_', ' ') + " (" + certificate() + ")";
  }

  private String trust() {
    return caFile == null ? "no ca_file is given: the usual authorities are trusted" : "ca_file is " + caFile;
  }

  private String certificate() {
    return certificateFile == null ? "no certificate_file is given" : "certificate_file is " + certificateFile;
  }

  private TrustManager[] trusted() throws Fault, GeneralSecurityException, IOException {
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

  private KeyManager[] shown() throws Fault, GeneralSecurityException, IOException {
    Certificate[] chain = certificates("certificate_file", certificateFile).toArray(Certificate[]::new);
    KeyStore own = KeyStore.getInstance("PKCS12");
    own.load(null, null);
    own.setKeyEntry("own", key(chain[0]), NO_PASSWORD, chain);
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(own, NO_PASSWORD);
    return factory.getKeyManagers();
  }

  private static List<Certificate> certificates(String what, String file) throws Fault {
    List<Certificate> found = new ArrayList<>();
    Matcher block = BLOCK.matcher(text(what, file));
    try {
      CertificateFactory factory = CertificateFactory.getInstance("X.509");
      while (block.find()) {
        if (block.group(1).endsWith("CERTIFICATE")) {
          found.add(factory.generateCertificate(new ByteArrayInputStream(bytes(block.group(2)))));
        }
      }
    } catch (CertificateException | IllegalArgumentException error) {
      throw unusable("the " + what + " " + file + " cannot be used: it holds a broken certificate");
    }
    if (found.isEmpty()) throw unusable("the " + what + " " + file + " cannot be used: it holds no certificate");
    return found;
  }

  private PrivateKey key(Certificate certificate) throws Fault {
    String what = keyFile == null ? "certificate_file" : "key_file";
    String file = keyFile == null ? certificateFile : keyFile;
    String trouble = "the " + what + " " + file + " cannot be used: ";
    Matcher block = BLOCK.matcher(text(what, file));
    while (block.find()) {
      switch (block.group(1)) {
        case "PRIVATE KEY" -> {
          return fitting(certificate, block.group(2), trouble);
        }
        case "ENCRYPTED PRIVATE KEY" -> throw unusable(trouble + "a key with a passphrase is not supported");
        case "RSA PRIVATE KEY", "EC PRIVATE KEY" ->
            throw unusable(trouble + "the key is not PKCS#8, into which `openssl pkcs8 -topk8 -nocrypt` turns it");
        default -> {}
      }
    }
    throw unusable(trouble + "it holds no private key");
  }

  private static PrivateKey fitting(Certificate certificate, String base64, String trouble) throws Fault {
    String algorithm = certificate.getPublicKey().getAlgorithm();
    try {
      PrivateKey key = KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(bytes(base64)));
      Signature signature = Signature.getInstance(signatureOf(algorithm));
      signature.initSign(key);
      byte[] signed = signature.sign();
      signature.initVerify(certificate.getPublicKey());
      if (signature.verify(signed)) return key;
    } catch (InvalidKeySpecException | IllegalArgumentException error) {
      // A key of another kind, or none.
    } catch (GeneralSecurityException error) {
      throw unusable(trouble + "a key for " + algorithm + " is not supported");
    }
    throw unusable(trouble + "the key is not that of the certificate");
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

  /** Names the file: the library's own errors do not. */
  private static String text(String what, String file) throws Fault {
    try {
      return Files.readString(Path.of(file), StandardCharsets.ISO_8859_1);
    } catch (NoSuchFileException | FileNotFoundException | InvalidPathException error) {
      throw unusable("the " + what + " " + file + " cannot be read: no such file");
    } catch (IOException error) {
      throw unusable("the " + what + " " + file + " cannot be read: " + error.getClass().getSimpleName());
    }
  }

  private static String state(String file) {
    try {
      BasicFileAttributes found = Files.readAttributes(Path.of(file), BasicFileAttributes.class);
      return found.lastModifiedTime() + " " + found.size() + " " + found.fileKey();
    } catch (IOException | InvalidPathException error) {
      return "none";
    }
  }

  private static Fault unusable(String detail) {
    return Fault.lasting("tls_file_unusable", 0, detail);
  }
}
